"""R38: a received body equals the body that was sent, for every type."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from enum import Enum
from typing import Any, NamedTuple, TypedDict
from uuid import UUID

import msgspec
import pytest

from pillarbox.core.errors import InvalidParameterError, SerializationError
from pillarbox.testing.contract.cases.case import Case


@dataclass(frozen=True)
class Item:
    name: str
    count: int = 1


@dataclass
class Order:
    number: int
    items: list[Item]
    notes: dict[str, str] = field(default_factory=dict)
    paid_at: datetime | None = None


class Point(msgspec.Struct, frozen=True):
    x: float
    y: float = 0.0


class Circle(msgspec.Struct, tag=True):
    centre: Point
    radius: float


class Square(msgspec.Struct, tag=True):
    corner: Point
    side: float


class Address(TypedDict, total=False):
    street: str
    number: int


class Pair(NamedTuple):
    left: str
    right: int


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


NOON = datetime(2026, 2, 3, 12, 0, 0, 123_456, tzinfo=UTC)

ROUND_TRIPS: dict[str, tuple[Any, Any]] = {
    "str": (str, "hello"),
    "str, empty": (str, ""),
    "str beyond ASCII": (str, "grüße 漢字 🏤 \u200d\u202e"),
    "str of control characters": (str, "\x00\x01\n\r\t\x7f"),
    "str of JSON": (str, '{"not": "parsed"}'),
    "bytes": (bytes, bytes(range(256))),
    "bytes, empty": (bytes, b""),
    "bytes that are no UTF-8": (bytes, b"\xff\xfe\x80"),
    "untyped dict": (Any, {"a": [1, 2.5, None, True, {"b": "c"}], "": {}}),
    "untyped list": (Any, [[], {}, "", 0, False, None]),
    "untyped str": (Any, "text"),
    "untyped int": (Any, 7),
    "untyped None": (Any, None),
    "int": (int, -42),
    "int of 63 bits": (int, 2**63 - 1),
    "float": (float, 0.1),
    "bool": (bool, True),
    "None": (None, None),
    "list": (list[int], [3, 1, 2]),
    "dict": (dict[str, list[int]], {"a": [1], "b": []}),
    "tuple": (tuple[int, str], (1, "a")),
    "set": (set[int], {1, 2, 3}),
    "datetime": (datetime, NOON),
    "UUID": (UUID, UUID("12345678-1234-5678-1234-567812345678")),
    "Decimal": (Decimal, Decimal("12.340")),
    "Enum": (Colour, Colour.BLUE),
    "dataclass": (Item, Item("tea", 2)),
    "nested dataclass": (Order, Order(7, [Item("tea"), Item("cup", 2)], {"to": "Ü"}, NOON)),
    "list of dataclasses": (list[Item], [Item("a"), Item("b", 2)]),
    "Struct": (Point, Point(1.5, -2.0)),
    "union of tagged Structs": (Circle | Square, Square(Point(1.0), 2.0)),
    "TypedDict": (Address, {"street": "Königsallee", "number": 1}),
    "TypedDict, partly filled": (Address, {"number": 1}),
    "NamedTuple": (Pair, Pair("a", 1)),
    "optional": (str | None, None),
}


class Bodies(Case):
    @pytest.mark.parametrize(("body_type", "body"), ROUND_TRIPS.values(), ids=ROUND_TRIPS.keys())
    def test_R38_a_body_arrives_as_it_was_sent(self, body_type: Any, body: Any) -> None:
        box = self.open(body_type)
        box.send(body)
        box.send_many([body])
        for message in self.take(box, 2):
            assert message.body == body
            assert type(message.body) is type(body)

    def test_R38_a_pydantic_model_arrives_as_it_was_sent(self) -> None:
        pydantic = pytest.importorskip("pydantic")
        model = pydantic.create_model("Parcel", weight=(float, ...), tags=(list[str], []))
        box = self.open(model)
        box.send(model(weight=1.5, tags=["fragile"]))
        body = self.one(box).body
        assert type(body) is model
        assert body == model(weight=1.5, tags=["fragile"])

    def test_R38_a_body_is_the_same_at_every_delivery(self) -> None:
        box = self.open(Order)
        order = Order(7, [Item("tea")])
        box.send(order)
        first = self.one(box)
        first.body.items.append(Item("smuggled in"))
        first.nack()
        assert self.one(box).body == order

    def test_R38_a_dead_letter_has_its_body_and_its_type(self) -> None:
        box, dead = self.open_mortal(1, Item)
        box.send(Item("tea"))
        self.die(box)
        assert self.one(dead).body == Item("tea")

    def test_R38_bodies_of_one_queue_may_be_read_as_another_type(self) -> None:
        box = self.open(Item)
        box.send(Item("tea", 2))
        assert self.one(self.backend.again(box, Any)).body == {"name": "tea", "count": 2}

    def test_R38_bytes_like_bodies_are_taken_as_they_are_when_sent(self) -> None:
        box = self.open(bytes)
        body = bytearray(b"as sent")
        box.send(body)
        body[:] = b"changed"
        assert self.one(box).body == b"as sent"

    def test_R38_a_body_of_the_largest_size_is_taken(self) -> None:
        box = self.open(bytes)
        body = b"x" * self.backend.bounds.body_bytes_max
        box.send(body)
        assert self.one(box).body == body

    def test_R22_a_body_one_byte_too_large_is_refused(self) -> None:
        box = self.open(bytes)
        most = self.backend.bounds.body_bytes_max
        with pytest.raises(InvalidParameterError, match=f"{most:,}") as raised:
            box.send(b"x" * (most + 1))
        assert raised.value.parameter == "body"
        self.empty(box)

    def test_R22_the_size_is_counted_in_bytes_not_in_characters(self) -> None:
        box = self.open(str)
        with pytest.raises(InvalidParameterError):
            box.send("ü" * (self.backend.bounds.body_bytes_max // 2 + 1))
        self.nothing(box)

    @pytest.mark.parametrize(
        ("body_type", "body"),
        [
            (str, b"bytes"),
            (str, None),
            (str, "\ud800"),
            (bytes, "text"),
            (int, "1"),
            (int, True),
            (Item, {"name": "tea"}),
            (Point, Item("tea")),
            (Any, object()),
            (Any, {1: "a key that is no str"}),
            (Any, b"bytes"),
            (float, float("nan")),
            (Any, [float("inf")]),
        ],
        ids=repr,
    )
    def test_R38_a_body_of_the_wrong_type_is_refused_and_nothing_is_sent(
        self, body_type: Any, body: Any
    ) -> None:
        box = self.open(body_type)
        with pytest.raises(SerializationError):
            box.send(body)
        self.empty(box)

    @pytest.mark.parametrize("body_type", [object.__init__, complex, type(lambda: 0)], ids=repr)
    def test_R38_a_body_type_that_can_t_travel_is_refused(self, body_type: Any) -> None:
        with pytest.raises(InvalidParameterError) as raised:
            self.open(body_type)
        assert raised.value.parameter == "body_type"
