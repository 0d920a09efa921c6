"""From types to columns. No Spark."""

from __future__ import annotations

import datetime
import decimal
import enum
import uuid
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, TypedDict

import msgspec
import pydantic
import pytest

from pillarbox.core.errors import InvalidParameterError, SerializationError
from pillarbox.pipeline.schema import decoder_of_rows, shape_of


class Colour(enum.Enum):
    RED = "red"


class Line(msgspec.Struct):
    tea: str
    grams: int | None = None


class Order(msgspec.Struct, tag="order"):
    number: int
    at: datetime.datetime
    lines: list[Line]
    price: decimal.Decimal
    first: Line
    colour: Colour = Colour.RED
    paid: bool = False
    notes: dict[str, float] = {}
    key: uuid.UUID | None = None
    size: Literal["s", "l"] = "s"
    anything: Any = None
    photo: bytes = b""


@dataclass
class Plain:
    day: datetime.date
    tags: list[str] = field(default_factory=list)
    weight: float = 1.5


class Typed(TypedDict):
    name: str


class Named(NamedTuple):
    name: str


class Inner(pydantic.BaseModel):
    tea: str


class Model(pydantic.BaseModel):
    number: int
    inner: Inner | None = None


class Listed(pydantic.BaseModel):
    tags: list[str] = []
    notes: list[str] = pydantic.Field(default_factory=list)


def test_R80_a_struct_becomes_a_column_for_each_field() -> None:
    assert [(each.name, each.type) for each in shape_of(Order).columns] == [
        ("type", "STRING"),
        ("number", "BIGINT"),
        ("at", "TIMESTAMP"),
        ("lines", "ARRAY<STRUCT<`tea`: STRING, `grams`: BIGINT>>"),
        ("price", "DECIMAL(38,18)"),
        ("first", "STRUCT<`tea`: STRING, `grams`: BIGINT>"),
        ("colour", "STRING"),
        ("paid", "BOOLEAN"),
        ("notes", "MAP<STRING, DOUBLE>"),
        ("key", "STRING"),
        ("size", "STRING"),
        ("anything", "VARIANT"),
        ("photo", "BINARY"),
    ]


def test_R80_what_is_required_and_what_has_a_default() -> None:
    columns = {each.name: each for each in shape_of(Order).columns}
    required = {name for name, each in columns.items() if each.required and each.default is None}
    assert required == {"type", "number", "at", "lines", "price", "first"}
    assert (columns["paid"].default, columns["size"].default) == (False, "s")
    assert (columns["colour"].default, columns["photo"].default) == ("red", b"")
    assert columns["notes"].default == {}
    assert [each.default for each in shape_of(Plain).columns] == [None, [], 1.5]
    assert [each.default for each in shape_of(Listed).columns] == [[], []]
    assert [(each.name, each.required) for each in columns["first"].parts] == [
        ("tea", True),
        ("grams", False),
    ]


@pytest.mark.parametrize(
    ("body_type", "ddl"),
    [
        (Plain, "`day` DATE, `tags` ARRAY<STRING>, `weight` DOUBLE"),
        (Typed, "`name` STRING"),
        (Model, "`number` BIGINT, `inner` STRUCT<`tea`: STRING>"),
        (str, "`body` STRING"),
        (bytes, "`body` BINARY"),
        (int, "`body` BIGINT"),
        (list[int], "`body` ARRAY<BIGINT>"),
        (Any, "`body` VARIANT"),
        (int | str, "`body` VARIANT"),
        (dict[str, int], "`body` MAP<STRING, BIGINT>"),
    ],
)
def test_R80_every_kind_of_body_has_columns(body_type: Any, ddl: str) -> None:
    assert shape_of(body_type).ddl == ddl


def test_R80_a_tuple_is_one_column() -> None:
    assert [each.name for each in shape_of(Named).columns] == ["body"]


def test_R80_a_type_without_a_json_form_is_refused() -> None:
    with pytest.raises(InvalidParameterError, match="body_type"):
        shape_of(threading_lock())


@pytest.mark.parametrize("name", ["_index", "_Time", "_first", "_metadata", "_unreadable"])
def test_R80_a_field_may_not_hide_a_column_of_ours(name: str) -> None:
    wrong = msgspec.defstruct("Wrong", [(name, int)])
    with pytest.raises(InvalidParameterError, match=f"without a field {name}"):
        shape_of(wrong)


def test_R80_fields_may_not_differ_in_case_only() -> None:
    wrong = msgspec.defstruct("Wrong", [("id", int), ("tea", str), ("Id", int)])
    with pytest.raises(InvalidParameterError, match="only differ in case: id, Id"):
        shape_of(wrong)


def threading_lock() -> Any:
    import threading

    return type(threading.Lock())


class Part(msgspec.Struct):
    tea: str
    grams: int = 100
    note: str | None = None


class Whole(msgspec.Struct):
    first: Part
    parts: list[Part] = []
    by_name: dict[str, Part] = {}
    weight: float = 0.1


def test_R80_a_null_in_a_row_stands_for_the_default_of_a_field() -> None:
    decode = decoder_of_rows(Whole)
    part = '{"tea": "Assam", "grams": null, "note": null}'
    row = f'{{"first": {part}, "parts": [{part}], "by_name": {{"a": {part}}}, "weight": 0.30}}'
    one = Part("Assam", 100, None)
    assert decode(row.encode()) == Whole(one, [one], {"a": one}, 0.3)
    assert decode(b'{"first": {"tea": "Assam"}, "parts": null}') == Whole(one)


def test_R80_a_null_never_stands_for_what_is_required() -> None:
    decode = decoder_of_rows(Whole)
    with pytest.raises(SerializationError, match="tea"):
        decode(b'{"first": {"tea": null, "grams": null}}')
