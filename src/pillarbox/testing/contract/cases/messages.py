"""R5: a received message is immutable."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from pillarbox.mailbox.message import Message
from pillarbox.testing.contract.backend import Capability, needs
from pillarbox.testing.contract.cases.case import Case

FIELDS = (
    "id",
    "body",
    "receipt_handle",
    "delivery_count",
    "enqueued_at",
    "attributes",
    "priority",
    "group",
    "reply_to",
    "in_reply_to",
    "dead_letter",
)


def fields_of(message: Message[Any]) -> dict[str, object]:
    """Return all fields of a message."""
    return {field: getattr(message, field) for field in FIELDS}


class Messages(Case):
    def received(self, **options: Any) -> Message[Any]:
        box = self.open()
        box.send("a", **options)
        return self.one(box)

    def test_R5_every_field_has_its_type(self) -> None:
        message = self.received(attributes={"colour": "red"})
        assert type(message.id) is str
        assert message.body == "a"
        assert type(message.receipt_handle) is str
        assert type(message.delivery_count) is int
        assert type(message.enqueued_at) is datetime
        assert isinstance(message.attributes, Mapping)
        assert type(message.priority) is int

    def test_R5_what_was_not_given_is_none(self) -> None:
        message = self.received()
        assert message.priority == 0
        for field in ("group", "reply_to", "in_reply_to", "dead_letter"):
            assert getattr(message, field) is None

    @pytest.mark.parametrize("field", FIELDS)
    def test_R5_a_message_is_frozen(self, field: str) -> None:
        message = self.received()
        before = getattr(message, field)
        with pytest.raises((AttributeError, TypeError)):
            setattr(message, field, "changed")
        assert getattr(message, field) == before

    def test_R5_a_message_takes_no_new_fields(self) -> None:
        message: Any = self.received()
        with pytest.raises((AttributeError, TypeError)):
            message.note = "mine"
        assert not hasattr(message, "__dict__")

    def test_R5_attributes_are_read_only(self) -> None:
        attributes: Any = self.received(attributes={"colour": "red"}).attributes
        with pytest.raises(TypeError):
            attributes["colour"] = "blue"
        with pytest.raises(TypeError):
            del attributes["colour"]
        assert dict(attributes) == {"colour": "red"}

    def test_R5_attributes_are_read_only_when_there_are_none(self) -> None:
        box = self.open_with("a", "b")
        first, second = self.take(box, 2)
        attributes: Any = first.attributes
        with pytest.raises(TypeError):
            attributes["colour"] = "blue"
        assert dict(second.attributes) == {}

    def test_R5_attributes_are_a_private_copy_of_the_sender_s(self) -> None:
        box = self.open()
        mine = {"colour": "red"}
        box.send("a", attributes=mine)
        box.send_many(["b"], attributes=mine)
        mine["colour"] = "blue"
        assert [dict(m.attributes) for m in self.take(box, 2)] == [{"colour": "red"}] * 2

    def test_R5_the_time_of_sending_is_aware_and_utc(self) -> None:
        enqueued_at = self.received().enqueued_at
        assert enqueued_at.utcoffset() == timedelta(0)
        assert enqueued_at > datetime(2020, 1, 1, tzinfo=UTC)

    def test_R5_the_time_of_sending_advances_with_time(self) -> None:
        box = self.open_with("a")
        self.pass_time(2)
        box.send("b")
        times = {m.body: m.enqueued_at for m in self.take(box, 2)}
        passed = times["b"] - times["a"]
        assert timedelta(seconds=1) < passed < timedelta(seconds=60)

    def test_R5_the_time_of_sending_is_not_that_of_coming_due(self) -> None:
        box = self.open()
        box.send("delayed", delay_seconds=2)
        box.send("plain")
        self.pass_time(2)
        times = {m.body: m.enqueued_at for m in self.take(box, 2)}
        assert abs(times["delayed"] - times["plain"]) < timedelta(seconds=1)

    def test_R5_a_message_says_the_same_after_it_was_settled(self) -> None:
        box = self.open()
        box.send("a", attributes={"colour": "red"})
        message = self.one(box)
        before = fields_of(message)
        message.acknowledge()
        assert fields_of(message) == before

    def test_R5_a_message_says_the_same_after_it_was_redelivered(self) -> None:
        box = self.open()
        box.send("a", attributes={"colour": "red"})
        first = self.one(box)
        before = fields_of(first)
        first.nack()
        second = self.one(box)
        assert fields_of(first) == before
        assert second.delivery_count == 2

    def test_R5_a_message_says_the_same_after_it_died(self) -> None:
        box, dead = self.open_mortal(sent="a")
        message = self.one(box)
        before = fields_of(message)
        message.nack()
        self.let_die(box)
        self.one(dead)
        assert fields_of(message) == before

    @needs(Capability.DEAD_LETTER_HISTORY)
    def test_R5_a_dead_letter_says_the_same_after_it_was_redriven(self) -> None:
        box, dead = self.open_mortal(sent="a")
        self.die(box)
        letter = self.one(dead)
        before = fields_of(letter)
        letter.nack()
        assert dead.redrive() == 1
        self.one(box)
        assert fields_of(letter) == before

    def test_R5_a_message_shows_what_it_is(self) -> None:
        message = self.received()
        assert message.id in repr(message)
        assert "'a'" in repr(message)
