"""From the type of a log's bodies to the columns that a processor sees. No Spark needed.

A class with fields becomes a column for each; `str`, `bytes`, and any other type becomes one
column, `body`. What Spark has no type for (`Any`, a union) is VARIANT.
"""

from __future__ import annotations

import datetime
import decimal
import typing
from dataclasses import dataclass
from typing import Any, Literal

import msgspec
from msgspec import inspect as shapes

from pillarbox.codec import codec_for
from pillarbox.core.errors import InvalidParameterError

#: Columns that every input has beside those of its bodies.
METADATA = ("_index", "_time")
BODY = "body"
VARIANT = "VARIANT"
_ENUMS = {str: "STRING", int: "BIGINT"}
_PLAIN: dict[type, str] = {
    shapes.StrType: "STRING",
    shapes.IntType: "BIGINT",
    shapes.FloatType: "DOUBLE",
    shapes.BoolType: "BOOLEAN",
    shapes.BytesType: "BINARY",
    shapes.DateTimeType: "TIMESTAMP",
    shapes.DateType: "DATE",
    shapes.DecimalType: "DECIMAL(38,18)",
    shapes.UUIDType: "STRING",
    shapes.TimeType: "STRING",
    shapes.TimeDeltaType: "STRING",
}
_LISTS = (shapes.ListType, shapes.SetType, shapes.FrozenSetType, shapes.VarTupleType)
_SCALARS = (str, int, float, bool, datetime.datetime, datetime.date, decimal.Decimal)


@dataclass(frozen=True, slots=True)
class Column:
    """One field of a body. A required one is never null: a body without it can't be read."""

    name: str
    type: str
    required: bool
    default: Any = None
    parts: tuple[Column, ...] = ()

    @property
    def stored_type(self) -> str:
        """Its type in a table, which has no VARIANT: a column with one is kept as JSON."""
        return "STRING" if VARIANT in self.type else self.type


@dataclass(frozen=True, slots=True)
class Shape:
    """How bodies look: JSON objects with columns, or one value that is text, bytes or JSON."""

    kind: Literal["object", "text", "bytes", "json"]
    columns: tuple[Column, ...]

    @property
    def ddl(self) -> str:
        return ", ".join(f"{quoted(each.name)} {each.type}" for each in self.columns)

    @property
    def stored_ddl(self) -> str:
        """The columns of a table of such bodies."""
        return ", ".join(f"{quoted(each.name)} {each.stored_type}" for each in self.columns)

    @property
    def untyped(self) -> bool:
        """Whether bodies may be anything: the columns of a row are packed into one."""
        return self.kind == "json" and self.columns[0].type == VARIANT


def shape_of(body_type: Any) -> Shape:
    """The shape of a body type; InvalidParameterError if bodies can't be of that type.

    Examples:
        >>> class Order(msgspec.Struct):
        ...     number: int
        ...     tea: str | None = None
        >>> shape_of(Order).ddl
        '`number` BIGINT, `tea` STRING'
    """
    codec_for(body_type)  # refuses what has no JSON form, and says why
    if body_type is str:
        return Shape("text", (Column(BODY, "STRING", required=True),))
    if body_type is bytes:
        return Shape("bytes", (Column(BODY, "BINARY", required=True),))
    fields = _fields(body_type, shapes.type_info(Any if body_type is object else body_type))
    if fields is not None:
        taken = [each.name for each in fields if each.name in METADATA]
        if taken:
            raise InvalidParameterError(
                "body_type", body_type, f"a type without a field {taken[0]}: Pillarbox adds one"
            )
        return Shape("object", fields)
    return Shape("json", (_column(BODY, body_type, required=True),))


def _fields(hint: Any, shape: Any) -> tuple[Column, ...] | None:
    """The columns of a class with fields; None for anything else."""
    if hasattr(hint, "__pydantic_core_schema__"):
        return tuple(
            _column(info.alias or name, info.annotation, info.is_required(), info.default)
            for name, info in hint.model_fields.items()
        )
    if isinstance(shape, shapes.Metadata):
        return _fields(None, shape.type)
    if not _has_fields(shape):
        return None
    columns = []
    if getattr(shape, "tag", None) is not None:
        kind = _ENUMS[type(shape.tag)]
        columns.append(Column(shape.tag_field, kind, required=True))
    for each in shape.fields:
        optional = _is_optional(each.type)
        default = None if each.default is msgspec.NODEFAULT else each.default
        name = getattr(each, "encode_name", each.name)
        required = each.required or (default is not None and not optional)
        columns.append(_made(name, each.type, required and not optional, default))
    return tuple(columns)


def _column(name: str, hint: Any, required: bool, default: Any = None) -> Column:
    members = [each for each in typing.get_args(hint) if each is not type(None)]
    if len(members) == 1 and type(None) in typing.get_args(hint):
        return _column(name, members[0], required=False)
    if hasattr(hint, "__pydantic_core_schema__"):
        parts = _fields(hint, None) or ()
        return Column(name, _struct(parts), required, None, parts)
    shape = shapes.type_info(Any if hint is object else hint)
    return _made(name, shape, required and not _is_optional(shape), default)


def _made(name: str, shape: Any, required: bool, default: Any) -> Column:
    bare = _without_none(shape)
    known = default if isinstance(default, _SCALARS) else None
    # A field that may be absent, with a default that Spark can't say, is not asked for.
    asked = required and (default is None or known is not None)
    parts = (_fields(None, bare) or ()) if _has_fields(bare) else ()
    return Column(name, _type(shape), asked, known, parts)


def _type(shape: Any) -> str:
    bare = _without_none(shape)
    if isinstance(bare, shapes.Metadata):
        return _type(bare.type)
    if type(bare) in _PLAIN:
        return _PLAIN[type(bare)]
    if isinstance(bare, shapes.EnumType):
        values = [each.value for each in bare.cls]
        return _of_values(values)
    if isinstance(bare, shapes.LiteralType):
        return _of_values(list(bare.values))
    if isinstance(bare, _LISTS):
        return f"ARRAY<{_type(bare.item_type)}>"
    if isinstance(bare, shapes.DictType) and isinstance(bare.key_type, shapes.StrType):
        return f"MAP<STRING, {_type(bare.value_type)}>"
    if _has_fields(bare):
        return _struct(_fields(None, bare) or ())
    return VARIANT


def _struct(parts: tuple[Column, ...]) -> str:
    return f"STRUCT<{', '.join(f'{quoted(each.name)}: {each.type}' for each in parts)}>"


def _of_values(values: list[Any]) -> str:
    kinds = {type(each) for each in values}
    return _ENUMS.get(kinds.pop(), VARIANT) if len(kinds) == 1 else VARIANT


def _has_fields(shape: Any) -> bool:
    """Whether it is a JSON object; a named tuple and some Structs are arrays."""
    is_array = isinstance(shape, shapes.NamedTupleType) or getattr(shape, "array_like", False)
    return hasattr(shape, "fields") and not is_array


def _is_optional(shape: Any) -> bool:
    return _without_none(shape) is not shape


def _without_none(shape: Any) -> Any:
    """The type that is left when None is taken away, if exactly one is."""
    if isinstance(shape, shapes.UnionType):
        left = [each for each in shape.types if not isinstance(each, shapes.NoneType)]
        if len(left) == 1:
            return left[0]
    return shape


def quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
