"""R39: peek at messages without receiving them, and delete them by id."""

from __future__ import annotations

from typing import Any

import pytest

from pillarbox.core.errors import InvalidParameterError
from pillarbox.mailbox.message import Undecodable
from pillarbox.testing.contract.backend import Capability, needs
from pillarbox.testing.contract.cases.case import Case


class Peeking(Case):
    @needs(Capability.PEEK)
    def test_R39_peek_shows_what_is_ready_and_takes_nothing(self) -> None:
        box = self.open()
        ids = box.send_many(["a", "b"])
        for _ in range(2):
            seen = box.peek()
            self.same_items([m.id for m in seen], ids)
        assert [m.delivery_count for m in self.take(box, 2)] == [1, 1]

    @needs(Capability.PEEK)
    def test_R39_what_was_peeked_at_was_delivered_to_nobody(self) -> None:
        box = self.open()
        box.send("a", attributes={"colour": "red"}, priority=3)
        (seen,) = box.peek()
        assert (seen.body, seen.delivery_count, seen.receipt_handle) == ("a", 0, "")
        assert dict(seen.attributes) == {"colour": "red"}
        assert seen.enqueued_at == self.one(box).enqueued_at

    @needs(Capability.PEEK)
    def test_R39_what_was_peeked_at_can_t_be_settled(self) -> None:
        box = self.open_with("a")
        (seen,) = box.peek()
        assert seen.acknowledge() is False
        assert seen.nack() is False
        assert seen.extend_visibility(10) is False
        assert seen.release() is False
        assert box.acknowledge_many([seen]) == [False]
        assert self.one(box).delivery_count == 1

    @needs(Capability.PEEK)
    def test_R39_peek_shows_only_as_many_as_asked(self) -> None:
        box = self.open()
        box.send_many([str(n) for n in range(15)])
        assert len(box.peek()) == 10
        assert len(box.peek(3)) == 3
        assert len(box.peek(100)) == 15

    @needs(Capability.PEEK)
    def test_R39_peek_shows_each_state_apart(self) -> None:
        box = self.open_with("in flight")
        self.one(box)
        box.send("ready")
        box.send("scheduled", delay_seconds=60)
        assert [m.body for m in box.peek(state="ready")] == ["ready"]
        assert [m.body for m in box.peek(state="scheduled")] == ["scheduled"]
        assert [m.body for m in box.peek(state="in_flight")] == ["in flight"]

    @needs(Capability.PEEK)
    def test_R39_peek_sees_what_time_has_done(self) -> None:
        box = self.open()
        box.send("delayed", delay_seconds=1)
        box.send("leased")
        self.one(box, visibility_timeout=1)
        self.pass_time(1)
        assert {m.body for m in box.peek()} == {"delayed", "leased"}
        assert list(box.peek(state="scheduled")) == []
        assert list(box.peek(state="in_flight")) == []

    @needs(Capability.PEEK, Capability.FIFO_ORDER, Capability.PRIORITY)
    def test_R39_peek_is_in_the_order_of_delivery(self) -> None:
        box = self.open_with("a", "b")
        box.send("urgent", priority=9)
        box.send_many(["in 2", "in 2 too"], delay_seconds=2)
        box.send("in 1", delay_seconds=1)
        assert [m.body for m in box.peek()] == ["urgent", "a", "b"]
        assert [m.body for m in box.peek(state="scheduled")] == ["in 1", "in 2", "in 2 too"]

    @needs(Capability.PEEK, Capability.DEAD_LETTER_HISTORY)
    def test_R39_peek_shows_why_a_dead_letter_died(self) -> None:
        box, dead = self.open_mortal(1, sent="a")
        self.die(box)
        (seen,) = dead.peek()
        assert seen.dead_letter is not None
        assert seen.dead_letter.source == box.name
        assert seen.delivery_count == 1

    @needs(Capability.PEEK)
    def test_R39_peek_at_nothing_is_empty(self) -> None:
        assert list(self.open().peek()) == []

    @needs(Capability.PEEK)
    def test_R39_peek_shows_a_body_that_does_not_decode_as_such(self) -> None:
        box = self.open(int)
        self.backend.put_raw(box, b"not a number")
        (seen,) = box.peek()
        assert isinstance(seen.body, Undecodable)
        assert seen.body.data == b"not a number"
        assert seen.body.error

    @needs(Capability.PEEK)
    @pytest.mark.parametrize("state", ["dead", "", None, 1])
    def test_R22_peek_refuses_an_unknown_state(self, state: Any) -> None:
        with pytest.raises(InvalidParameterError, match="ready") as raised:
            self.open().peek(state=state)
        assert raised.value.parameter == "state"

    @needs(Capability.DELETE_BY_ID)
    def test_R39_delete_by_id_in_any_state(self) -> None:
        box = self.open()
        in_flight = box.send("in flight")
        held = self.one(box)
        ready = box.send("ready")
        scheduled = box.send("scheduled", delay_seconds=1)
        assert box.delete([ready, scheduled, in_flight]) == 3
        self.counts(box, 0)
        assert held.nack() is False
        self.pass_time(1)
        self.nothing(box)

    @needs(Capability.DELETE_BY_ID)
    def test_R39_delete_leaves_the_others_and_their_order(self) -> None:
        box = self.open()
        ids = box.send_many(["a", "b", "c", "d"])
        assert box.delete([ids[1], ids[2]]) == 2
        self.same_items(self.bodies(box, 2), ["a", "d"])
        self.nothing(box)

    @needs(Capability.DELETE_BY_ID)
    def test_R39_delete_of_what_is_not_there_is_zero(self) -> None:
        box, other = self.open(), self.open()
        foreign = other.send("elsewhere")
        gone = box.send("gone")
        self.one(box).acknowledge()
        assert box.delete([gone, foreign, "no such id", "", "zz-zz", "-"]) == 0
        assert box.delete([]) == 0
        assert self.one(other).body == "elsewhere"

    @needs(Capability.DELETE_BY_ID)
    def test_R39_delete_counts_an_id_named_twice_once(self) -> None:
        box = self.open()
        message_id = box.send("a")
        assert box.delete(iter([message_id, message_id])) == 1

    @needs(Capability.DELETE_BY_ID)
    def test_R39_delete_of_a_dead_letter(self) -> None:
        box, dead = self.open_mortal(1, sent="a")
        message_id = self.die(box)
        assert dead.delete([message_id]) == 1
        self.nothing(dead)
        assert dead.redrive() == 0

    @needs(Capability.DELETE_BY_ID)
    @pytest.mark.parametrize("ids", ["one-id", [7], [None]])
    def test_R22_delete_refuses_what_are_no_ids(self, ids: Any) -> None:
        box = self.open_with("a")
        with pytest.raises(InvalidParameterError) as raised:
            box.delete(ids)
        assert raised.value.parameter == "ids"
        self.counts(box, 1)
