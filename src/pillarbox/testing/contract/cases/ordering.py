"""R16, R17: higher priorities first; first in, first out within a priority."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from pillarbox.mailbox.message import Message
from pillarbox.testing.contract.backend import Capability, needs
from pillarbox.testing.contract.cases.case import Case

GIVE_BACK: dict[str, Callable[[Message[Any]], bool]] = {
    "nack": lambda message: message.nack(),
    "delayed nack": lambda message: message.nack(visibility_timeout=1),
    "expiry": lambda message: message.extend_visibility(1),
    "release": lambda message: message.release(),
}

every_way_back = pytest.mark.parametrize("give_back", GIVE_BACK.values(), ids=GIVE_BACK.keys())

SAMPLED = [0, 1, 2, 7, 8, 31, 32, 63, 64, 65, 127, 128, 191, 192, 254, 255]


class Ordering(Case):
    @needs(Capability.FIFO_ORDER)
    def test_R16_first_in_first_out(self) -> None:
        box = self.open()
        for number in range(20):
            box.send(str(number))
        assert self.bodies(box, 20) == [str(number) for number in range(20)]

    @needs(Capability.FIFO_ORDER)
    def test_R16_single_sends_and_batches_are_one_line(self) -> None:
        box = self.open_with("0")
        box.send_many(["1", "2"])
        box.send("3")
        assert [self.one(box).body for _ in range(4)] == ["0", "1", "2", "3"]

    @needs(Capability.FIFO_ORDER)
    def test_R16_the_line_is_the_queue_s_not_the_sender_s(self) -> None:
        box = self.open()
        other = self.backend.again(box, str)
        for number in range(6):
            (box, other)[number % 2].send(str(number))
        assert self.bodies(box, 6) == [str(number) for number in range(6)]

    @needs(Capability.FIFO_ORDER)
    def test_R16_a_batch_is_received_in_order(self) -> None:
        box = self.open()
        box.send_many([str(number) for number in range(10)])
        assert self.bodies(box, 4) == ["0", "1", "2", "3"]
        assert self.bodies(box, 6) == ["4", "5", "6", "7", "8", "9"]

    @needs(Capability.FIFO_ORDER, Capability.TAIL)
    @every_way_back
    def test_R16_a_redelivered_message_goes_to_the_tail(
        self, give_back: Callable[[Message[Any]], bool]
    ) -> None:
        box = self.open_with("a", "b", "c")
        assert give_back(self.one(box))
        self.pass_time(1)
        assert self.bodies(box, 3) == ["b", "c", "a"]

    @needs(Capability.ORIGINAL_PLACE)
    @every_way_back
    def test_R16_a_redelivered_message_keeps_its_original_place_on_request(
        self, give_back: Callable[[Message[Any]], bool]
    ) -> None:
        box = self.open(redelivery="original")
        box.send_many(["a", "b", "c"])
        first, second = self.take(box, 2)
        assert give_back(second)
        assert give_back(first)
        self.pass_time(1)
        assert self.bodies(box, 3) == ["a", "b", "c"]

    @needs(Capability.ORIGINAL_PLACE)
    def test_R16_an_original_place_is_before_all_that_was_sent_later(self) -> None:
        box = self.open(redelivery="original")
        box.send("a")
        held = self.one(box)
        box.send_many(["b", "c"])
        assert self.one(box).body == "b"
        held.nack()
        box.send("d")
        assert self.bodies(box, 3) == ["a", "c", "d"]

    @needs(Capability.ORIGINAL_PLACE)
    def test_R16_an_original_place_is_kept_again_and_again(self) -> None:
        box = self.open(redelivery="original")
        box.send_many(["a", "b"])
        for delivery in range(1, 5):
            message = self.one(box)
            assert (message.body, message.delivery_count) == ("a", delivery)
            message.nack()
        assert self.bodies(box, 2) == ["a", "b"]

    @needs(Capability.ORIGINAL_PLACE)
    def test_R16_the_original_place_of_a_delayed_message_is_where_it_came_due(self) -> None:
        box = self.open(redelivery="original")
        box.send("delayed", delay_seconds=1)
        box.send("sent meanwhile")
        self.pass_time(1)
        box.send("sent after")
        messages = self.take(box, 3)
        assert [m.body for m in messages] == ["sent meanwhile", "delayed", "sent after"]
        box.nack_many(reversed(messages))
        assert self.bodies(box, 3) == ["sent meanwhile", "delayed", "sent after"]

    @needs(Capability.FIFO_ORDER)
    def test_R16_equal_deadlines_keep_the_order_of_sending(self) -> None:
        box = self.open_with("a", "b", "c", "d")
        self.take(box, 4, visibility_timeout=1)
        self.pass_time(1)
        assert self.bodies(box, 4) == ["a", "b", "c", "d"]

    @needs(Capability.FIFO_ORDER, Capability.TAIL)
    def test_R16_leases_run_out_in_the_order_of_their_deadlines(self) -> None:
        box = self.open_with("a", "b", "c")
        for timeout in (3, 1, 2):
            self.one(box, visibility_timeout=timeout)
        self.pass_time(3)
        assert self.bodies(box, 3) == ["b", "c", "a"]

    @needs(Capability.PRIORITY)
    def test_R17_the_higher_number_goes_first(self) -> None:
        box = self.open()
        box.send("low", priority=1)
        box.send("high", priority=9)
        box.send("middle", priority=5)
        assert [self.one(box).body for _ in range(3)] == ["high", "middle", "low"]

    @needs(Capability.PRIORITY)
    def test_R17_all_levels_from_0_to_255_are_told_apart(self) -> None:
        box = self.open(int)
        shuffled = random.Random(17).sample(SAMPLED, len(SAMPLED))
        for priority in shuffled:
            box.send(priority, priority=priority)
        assert self.bodies(box, len(SAMPLED)) == sorted(SAMPLED, reverse=True)

    @needs(Capability.PRIORITY, Capability.BIG_BATCH)
    def test_R17_one_batch_is_in_the_order_of_all_256_levels(self) -> None:
        box = self.open(int)
        for priority in random.Random(17).sample(range(256), 256):
            box.send(priority, priority=priority)
        received = box.receive(max_messages=256)
        assert [m.priority for m in received] == list(range(255, -1, -1))

    @needs(Capability.PRIORITY)
    def test_R17_first_in_first_out_within_a_priority(self) -> None:
        box = self.open()
        for number in range(6):
            box.send(f"{number % 2}-{number}", priority=number % 2)
        assert self.bodies(box, 6) == ["1-1", "1-3", "1-5", "0-0", "0-2", "0-4"]

    @needs(Capability.PRIORITY)
    def test_R17_priority_is_0_unless_given(self) -> None:
        box = self.open_with("plain")
        box.send("one", priority=1)
        box.send("zero", priority=0)
        messages = self.take(box, 3)
        assert [(m.body, m.priority) for m in messages] == [("one", 1), ("plain", 0), ("zero", 0)]

    @needs(Capability.PRIORITY)
    def test_R17_a_batch_that_is_sent_has_one_priority(self) -> None:
        box = self.open_with("plain")
        box.send_many(["a", "b"], priority=255)
        messages = self.take(box, 3)
        assert [(m.body, m.priority) for m in messages] == [("a", 255), ("b", 255), ("plain", 0)]

    @needs(Capability.PRIORITY)
    def test_R17_priority_does_not_shorten_a_delay(self) -> None:
        box = self.open()
        box.send("urgent", priority=255, delay_seconds=2)
        box.send("plain")
        assert self.one(box).body == "plain"
        self.nothing(box)
        self.pass_time(2)
        assert self.one(box).body == "urgent"

    @needs(Capability.PRIORITY)
    def test_R17_once_due_a_delayed_message_goes_by_its_priority(self) -> None:
        box = self.open()
        box.send("urgent", priority=255, delay_seconds=1)
        box.send("plain")
        self.pass_time(1)
        assert self.bodies(box, 2) == ["urgent", "plain"]

    @needs(Capability.PRIORITY)
    @every_way_back
    def test_R17_a_redelivered_message_keeps_its_priority(
        self, give_back: Callable[[Message[Any]], bool]
    ) -> None:
        box = self.open()
        box.send("urgent", priority=7)
        box.send_many(["a", "b"])
        assert give_back(self.one(box))
        self.pass_time(1)
        messages = self.take(box, 3)
        assert [(m.body, m.priority) for m in messages] == [("urgent", 7), ("a", 0), ("b", 0)]

    @needs(Capability.PRIORITY, Capability.ORIGINAL_PLACE)
    def test_R17_an_original_place_is_one_among_its_priority(self) -> None:
        box = self.open(redelivery="original")
        for body, priority in (("low", 1), ("high", 9), ("low too", 1), ("high too", 9)):
            box.send(body, priority=priority)
        for message in self.take(box, 4):
            message.nack()
        assert self.bodies(box, 4) == ["high", "high too", "low", "low too"]

    @needs(Capability.PRIORITY)
    def test_R17_the_lower_is_served_while_the_higher_is_in_flight(self) -> None:
        box = self.open()
        box.send("high", priority=9)
        box.send("low")
        assert [self.one(box).body, self.one(box).body] == ["high", "low"]
