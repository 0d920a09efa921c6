"""Deduplication: a message that is sent twice within five minutes is stored once."""

from __future__ import annotations

from pillarbox.testing.contract.backend import Capability, needs
from pillarbox.testing.contract.cases.case import Case

MINUTES = 60


class Deduplication(Case):
    @needs(Capability.DEDUPLICATION)
    def test_R1_a_repeated_send_is_one_message_and_has_its_id(self) -> None:
        box = self.open()
        first = box.send("a", deduplication_id="order-1")
        assert box.send("a", deduplication_id="order-1") == first
        assert self.one(box).id == first
        self.nothing(box)

    @needs(Capability.DEDUPLICATION)
    def test_R1_the_first_body_stands(self) -> None:
        box = self.open()
        box.send("first", deduplication_id="order-1")
        box.send("second", deduplication_id="order-1", priority=9)
        assert self.one(box).body == "first"
        self.counts(box, 1)

    @needs(Capability.DEDUPLICATION)
    def test_R1_different_deduplication_ids_are_different_messages(self) -> None:
        box = self.open()
        assert box.send("a", deduplication_id="1") != box.send("a", deduplication_id="2")
        self.take(box, 2)

    @needs(Capability.DEDUPLICATION)
    def test_R1_without_a_deduplication_id_equal_bodies_are_different_messages(self) -> None:
        box = self.open()
        box.send("a", deduplication_id="1")
        box.send("a")
        box.send("a")
        self.take(box, 3)

    @needs(Capability.DEDUPLICATION)
    def test_R1_a_repetition_is_recognised_whoever_sends_it(self) -> None:
        box = self.open()
        first = box.send("a", deduplication_id="order-1")
        again = self.backend.again(box, str)
        assert again.send("a", deduplication_id="order-1") == first
        self.counts(box, 1)

    @needs(Capability.DEDUPLICATION)
    def test_R1_each_queue_recognises_its_own(self) -> None:
        box, other = self.open(), self.open()
        assert box.send("a", deduplication_id="1") != other.send("a", deduplication_id="1")
        assert self.one(other).body == "a"

    @needs(Capability.DEDUPLICATION)
    def test_R1_a_repetition_of_what_is_in_flight_is_recognised(self) -> None:
        box = self.open()
        box.send("a", deduplication_id="order-1")
        held = self.one(box)
        assert box.send("a", deduplication_id="order-1") == held.id
        self.nothing(box)
        held.nack()
        assert self.one(box).delivery_count == 2

    @needs(Capability.DEDUPLICATION)
    def test_R1_a_repetition_of_what_was_acknowledged_is_recognised(self) -> None:
        box = self.open()
        first = box.send("a", deduplication_id="order-1")
        self.one(box).acknowledge()
        assert box.send("a", deduplication_id="order-1") == first
        self.nothing(box)

    @needs(Capability.DEDUPLICATION, Capability.DELETE_BY_ID)
    def test_R1_a_repetition_of_what_was_deleted_is_recognised(self) -> None:
        box = self.open()
        first = box.send("a", deduplication_id="order-1")
        box.delete([first])
        assert box.send("a", deduplication_id="order-1") == first
        self.nothing(box)

    @needs(Capability.DEDUPLICATION, Capability.MESSAGE_DELAY)
    def test_R1_a_repetition_of_what_is_scheduled_does_not_hasten_it(self) -> None:
        box = self.open()
        first = box.send("a", deduplication_id="order-1", delay_seconds=2)
        assert box.send("a", deduplication_id="order-1") == first
        self.nothing(box)
        self.pass_time(2)
        assert self.one(box).id == first
        self.nothing(box)

    @needs(Capability.DEDUPLICATION, Capability.PURGE_AT_WILL)
    def test_R3_purge_forgets_what_was_sent(self) -> None:
        box = self.open()
        first = box.send("a", deduplication_id="order-1")
        box.purge()
        assert box.send("a", deduplication_id="order-1") != first
        assert self.one(box).body == "a"

    @needs(Capability.DEDUPLICATION, Capability.TIME_TRAVEL)
    def test_R1_a_repetition_is_recognised_for_five_minutes(self) -> None:
        box = self.open()
        first = box.send("a", deduplication_id="order-1")
        self.pass_time(5 * MINUTES - 1)
        assert box.send("a", deduplication_id="order-1") == first
        self.pass_time(1)
        assert box.send("a", deduplication_id="order-1") != first
        self.counts(box, 2)

    @needs(Capability.DEDUPLICATION, Capability.TIME_TRAVEL)
    def test_R1_the_five_minutes_begin_with_the_first_and_not_with_a_repetition(self) -> None:
        box = self.open()
        first = box.send("a", deduplication_id="order-1")
        self.pass_time(3 * MINUTES)
        assert box.send("a", deduplication_id="order-1") == first
        self.pass_time(2 * MINUTES)
        second = box.send("a", deduplication_id="order-1")
        assert second != first
        self.pass_time(3 * MINUTES)
        assert box.send("a", deduplication_id="order-1") == second

    @needs(Capability.DEDUPLICATION, Capability.CAPACITY)
    def test_R1_a_repetition_takes_no_room(self) -> None:
        box = self.open(capacity=1)
        first = box.send("a", deduplication_id="order-1")
        assert box.send("a", deduplication_id="order-1") == first

    @needs(Capability.DEDUPLICATION, Capability.GROUPS)
    def test_R1_a_repetition_is_recognised_across_groups(self) -> None:
        box = self.open()
        first = box.send("a", group="a", deduplication_id="order-1")
        assert box.send("a", group="b", deduplication_id="order-1") == first
        assert self.one(box).group == "a"
        self.counts(box, 1)
