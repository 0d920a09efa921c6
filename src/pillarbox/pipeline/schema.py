"""Maps the body type of a log to the columns that a processor sees. Does not need Spark.

A class with fields becomes one column per field; `str`, `bytes` and any other type become one
column, `body`. A type that Spark lacks (`Any`, a union) becomes VARIANT.
"""

from __future__ import annotations

import datetime
import decimal
import enum
import typing
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import msgspec
from msgspec import inspect as shapes

from pillarbox.codec import codec_for
from pillarbox.core.errors import InvalidParameterError, SerializationError

#: Columns that every input has in addition to those of its bodies.
METADATA = ("_index", "_time")
#: What a body has in this column can't be read as its type.
UNREADABLE = "_unreadable"
#: Typed logs are partitioned by `_first`, and Spark adds `_metadata` about the file of a row.
_RESERVED = (*METADATA, "_first", "_metadata", UNREADABLE)
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
_LITERALS = (str, int, float, bool, bytes, datetime.datetime, datetime.date, decimal.Decimal)
#: The defaults that these factories make; any other factory may make a new value for each body.
_EMPTY: dict[Any, Any] = {list: [], set: [], frozenset: [], dict: {}}
_decode_json = msgspec.json.Decoder(float_hook=decimal.Decimal).decode
_encode_json = msgspec.json.Encoder(decimal_format="number").encode


@dataclass(frozen=True, slots=True)
class Column:
    """One field of a body. A body that lacks a required field can't be parsed."""

    name: str
    type: str
    required: bool
    default: Any = None
    parts: tuple[Column, ...] = ()

    @property
    def stored_type(self) -> str:
        """The type in a table. Tables have no VARIANT; such a column is stored as JSON."""
        return "STRING" if VARIANT in self.type else self.type


@dataclass(frozen=True, slots=True)
class Shape:
    """The form of bodies: JSON objects with columns, or one value (text, bytes or JSON)."""

    kind: Literal["object", "text", "bytes", "json"]
    columns: tuple[Column, ...]

    @property
    def ddl(self) -> str:
        return ", ".join(f"{quoted(each.name)} {each.type}" for each in self.columns)

    @property
    def stored_ddl(self) -> str:
        """The columns of a table with these bodies, as DDL."""
        return ", ".join(f"{quoted(each.name)} {each.stored_type}" for each in self.columns)

    @property
    def untyped(self) -> bool:
        """Whether bodies may be any JSON: all columns of a row are packed into one."""
        return self.kind == "json" and self.columns[0].type == VARIANT


def shape_of(body_type: Any) -> Shape:
    """Return the shape of a body type; raise InvalidParameterError for unsupported types.

    Examples:
        >>> class Order(msgspec.Struct):
        ...     number: int
        ...     tea: str | None = None
        >>> shape_of(Order).ddl
        '`number` BIGINT, `tea` STRING'
    """
    codec_for(body_type)  # raises for types without a JSON form
    if body_type is str:
        return Shape("text", (Column(BODY, "STRING", required=True),))
    if body_type is bytes:
        return Shape("bytes", (Column(BODY, "BINARY", required=True),))
    fields = _fields(body_type, _described(body_type))
    if fields is not None:
        reserved = [each.name for each in fields if each.name.lower() in _RESERVED]
        if reserved:
            raise InvalidParameterError(
                "body_type", body_type, f"a type without a field {reserved[0]}: it is reserved"
            )
        counts = Counter(each.name.lower() for each in fields)
        if same := ", ".join(each.name for each in fields if counts[each.name.lower()] > 1):
            raise InvalidParameterError(
                "body_type", body_type, f"a type without fields that only differ in case: {same}"
            )
        return Shape("object", fields)
    return Shape("json", (_column(BODY, body_type, required=True),))


def decoder_of_rows(body_type: Any) -> Callable[[bytes], Any]:
    """Return a decoder of rows as JSON, where a null may stand for the default of a field."""
    decode = codec_for(body_type).decode
    shape = _described(body_type)

    def decode_row(data: bytes) -> Any:
        try:
            return decode(data)
        except SerializationError:
            return decode(_encode_json(_without_nulls(_decode_json(data), shape)))

    return decode_row


def _described(hint: Any) -> Any:
    """Return msgspec's description of a type."""
    return shapes.type_info(Any if hint is object else hint)


def _fields(hint: Any, shape: Any) -> tuple[Column, ...] | None:
    """Return the columns of a class with fields; None for any other type."""
    if hasattr(hint, "__pydantic_core_schema__"):
        return tuple(
            _column(
                info.alias or name,
                info.annotation,
                info.is_required(),
                _EMPTY.get(info.default_factory, info.default),
            )
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
        factory = _EMPTY.get(each.default_factory)
        default = factory if each.default is msgspec.NODEFAULT else each.default
        name = _encoded_name(each)
        required = each.required or (default is not None and not optional)
        columns.append(_column_of_shape(name, each.type, required and not optional, default))
    return tuple(columns)


def _column(name: str, hint: Any, required: bool, default: Any = None) -> Column:
    members = [each for each in typing.get_args(hint) if each is not type(None)]
    if len(members) == 1 and type(None) in typing.get_args(hint):
        return _column(name, members[0], required=False)
    if hasattr(hint, "__pydantic_core_schema__"):
        parts = _fields(hint, None) or ()
        return Column(name, _struct(parts), required, None, parts)
    shape = _described(hint)
    return _column_of_shape(name, shape, required and not _is_optional(shape), default)


def _column_of_shape(name: str, shape: Any, required: bool, default: Any) -> Column:
    bare, kind = _without_none(shape), _type(shape)
    value = default.value if isinstance(default, enum.Enum) else default
    empty = isinstance(value, list | dict) and not value and VARIANT not in kind
    literal = value if empty or isinstance(value, _LITERALS) else None
    # A field is optional if its default can't be expressed as a Spark literal.
    expected = required and (default is None or literal is not None)
    parts = (_fields(None, bare) or ()) if _has_fields(bare) else ()
    return Column(name, kind, expected, literal, parts)


def _type(shape: Any) -> str:
    bare = _without_none(shape)
    if isinstance(bare, shapes.Metadata):
        return _type(bare.type)
    if type(bare) in _PLAIN:
        return _PLAIN[type(bare)]
    if isinstance(bare, shapes.EnumType):
        values = [each.value for each in bare.cls]
        return _type_of_values(values)
    if isinstance(bare, shapes.LiteralType):
        return _type_of_values(list(bare.values))
    if isinstance(bare, _LISTS):
        return f"ARRAY<{_type(bare.item_type)}>"
    if isinstance(bare, shapes.DictType) and isinstance(bare.key_type, shapes.StrType):
        return f"MAP<STRING, {_type(bare.value_type)}>"
    if _has_fields(bare):
        return _struct(_fields(None, bare) or ())
    return VARIANT


def _struct(parts: tuple[Column, ...]) -> str:
    return f"STRUCT<{', '.join(f'{quoted(each.name)}: {each.type}' for each in parts)}>"


def _type_of_values(values: list[Any]) -> str:
    kinds = {type(each) for each in values}
    return _ENUMS.get(kinds.pop(), VARIANT) if len(kinds) == 1 else VARIANT


def _has_fields(shape: Any) -> bool:
    """Return whether a type is a JSON object; named tuples and some Structs are arrays."""
    is_array = isinstance(shape, shapes.NamedTupleType) or getattr(shape, "array_like", False)
    return hasattr(shape, "fields") and not is_array


def _encoded_name(field: Any) -> str:
    """Return the name of a field in JSON: a Struct may rename it."""
    return str(getattr(field, "encode_name", field.name))


def _without_nulls(value: Any, shape: Any) -> Any:
    """Return a JSON value without the nulls of fields that have a default and can't be null."""
    bare = _without_none(shape)
    if isinstance(bare, shapes.Metadata):
        return _without_nulls(value, bare.type)
    if isinstance(value, list) and isinstance(bare, _LISTS):
        return [_without_nulls(each, bare.item_type) for each in value]
    if isinstance(value, dict) and isinstance(bare, shapes.DictType):
        return {name: _without_nulls(each, bare.value_type) for name, each in value.items()}
    if isinstance(value, dict) and _has_fields(bare):
        fields = {_encoded_name(each): each for each in bare.fields}
        return {
            name: _without_nulls(each, fields[name].type) if name in fields else each
            for name, each in value.items()
            if each is not None
            or name not in fields
            or fields[name].required
            or _may_be_null(fields[name].type)
        }
    return value


def _may_be_null(shape: Any) -> bool:
    types = shape.types if isinstance(shape, shapes.UnionType) else (shape,)
    return any(isinstance(each, shapes.NoneType | shapes.AnyType) for each in types)


def _is_optional(shape: Any) -> bool:
    return _without_none(shape) is not shape


def _without_none(shape: Any) -> Any:
    """Return X for `X | None`; any other type as is."""
    if isinstance(shape, shapes.UnionType):
        left = [each for each in shape.types if not isinstance(each, shapes.NoneType)]
        if len(left) == 1:
            return left[0]
    return shape


def quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
