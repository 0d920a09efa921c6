"""R16 for message groups: strict order within a group, one batch of it at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from pillarbox.mailbox.message import Message
from pillarbox.mailbox.protocol import Mailbox
from pillarbox.testing.contract.backend import Capability, needs
from pillarbox.testing.contract.cases.case import Case
from pillarbox.testing.contract.cases.ordering import every_way_back


class Groups(Case):
    def grouped(self, *bodies: str, **options: Any) -> Mailbox[Any]:
        """Open a mailbox with these messages; the first letter of each is its group."""
        box = self.open(**options)
        for body in bodies:
            box.send(body, group=body[0])
        return box

    @needs(Capability.GROUPS)
    def test_R16_a_message_tells_its_group(self) -> None:
        box = self.grouped("a1")
        box.send_many(["b1"], group="b")
        assert sorted(str(m.group) for m in self.take(box, 2)) == ["a", "b"]

    @needs(Capability.GROUPS)
    def test_R16_a_group_is_received_in_order(self) -> None:
        box = self.grouped("a1", "a2", "a3")
        for expected in ("a1", "a2", "a3"):
            message = self.one(box)
            assert message.body == expected
            message.acknowledge()

    @needs(Capability.GROUPS)
    def test_R16_a_group_waits_while_one_of_it_is_in_flight(self) -> None:
        box = self.grouped("a1", "a2")
        first = self.one(box)
        self.nothing(box)
        self.nothing(self.backend.again(box, str))
        first.acknowledge()
        assert self.one(box).body == "a2"

    @needs(Capability.GROUPS)
    def test_R16_one_batch_may_have_several_of_a_group(self) -> None:
        box = self.grouped("a1", "a2", "a3", "a4")
        batch = box.receive(max_messages=3)
        assert [m.body for m in batch] == ["a1", "a2", "a3"]
        self.nothing(box)
        box.acknowledge_many(batch[:2])
        self.nothing(box)
        batch[2].acknowledge()
        assert self.one(box).body == "a4"

    @needs(Capability.GROUPS)
    def test_R16_other_groups_go_on(self) -> None:
        box = self.grouped("a1", "a2", "b1", "b2")
        assert self.one(box).body == "a1"
        second = self.one(box)
        assert second.body == "b1"
        second.acknowledge()
        assert self.one(box).body == "b2"
        self.nothing(box)

    @needs(Capability.GROUPS)
    def test_R16_messages_without_a_group_go_on(self) -> None:
        box = self.grouped("a1", "a2")
        self.one(box)
        box.send_many(["x", "y"])
        assert self.bodies(box, 2) == ["x", "y"]

    @needs(Capability.GROUPS)
    def test_R16_groups_take_turns(self) -> None:
        box = self.grouped("a1", "a2", "a3", "b1", "b2")
        order = []
        for _ in range(4):
            message = self.one(box)
            order.append(message.body)
            message.acknowledge()
        assert order == ["a1", "b1", "a2", "b2"]

    @needs(Capability.GROUPS)
    @every_way_back
    def test_R16_a_message_that_comes_back_is_the_first_of_its_group_again(
        self, give_back: Callable[[Message[Any]], bool]
    ) -> None:
        box = self.grouped("a1", "a2", "a3")
        assert give_back(self.one(box))
        self.pass_time(1)
        assert self.bodies(box, 3) == ["a1", "a2", "a3"]

    @needs(Capability.GROUPS, Capability.TAIL)
    def test_R16_a_group_waits_for_its_whole_batch(self) -> None:
        box = self.grouped("a1", "a2", "a3", "a4")
        first, second, third = box.receive(max_messages=3)
        third.nack()
        first.nack()
        self.nothing(box)
        second.acknowledge()
        assert self.bodies(box, 3) == ["a1", "a3", "a4"]

    @needs(Capability.GROUPS, Capability.ORIGINAL_PLACE)
    def test_R16_with_original_places_what_precedes_the_held_is_delivered_again(self) -> None:
        box = self.grouped("a1", "a2", "a3", "a4", redelivery="original")
        first, second, third = box.receive(max_messages=3)
        third.nack()
        self.nothing(box)
        first.nack()
        again = self.one(box)
        assert again.body == "a1"
        second.acknowledge()
        self.nothing(box)
        assert again.release()
        assert self.bodies(box, 3) == ["a1", "a3", "a4"]

    @needs(Capability.GROUPS, Capability.ORIGINAL_PLACE)
    def test_R16_with_original_places_one_of_a_batch_comes_back_at_a_time(self) -> None:
        box = self.grouped("a1", "a2", "a3", "a4", redelivery="original")
        held = box.receive(max_messages=3)
        for message in held[:2]:
            message.nack()
        again = self.one(box)
        assert again.body == "a1"
        self.nothing(box)
        again.acknowledge()
        assert self.one(box).body == "a2"
        self.nothing(box)

    @needs(Capability.GROUPS, Capability.ORIGINAL_PLACE, Capability.DELETE_BY_ID)
    def test_R16_with_original_places_a_group_waits_behind_what_is_held(self) -> None:
        box = self.grouped("a1", "a2", "a3", redelivery="original")
        first, second = box.receive(max_messages=2)
        second.nack()
        assert box.delete([second.id]) == 1
        self.nothing(box)
        first.acknowledge()
        assert self.one(box).body == "a3"

    @needs(Capability.GROUPS)
    def test_R16_a_group_waits_for_a_delayed_nack(self) -> None:
        box = self.grouped("a1", "a2", "b1")
        self.one(box).nack(visibility_timeout=2)
        assert self.one(box).body == "b1"
        self.nothing(box)
        self.pass_time(2)
        assert self.bodies(box, 2) == ["a1", "a2"]

    @needs(Capability.GROUPS)
    def test_R19_a_crashed_consumer_s_group_comes_back_in_order(self) -> None:
        box = self.grouped("a1", "a2", "a3")
        assert [m.body for m in box.receive(max_messages=2, visibility_timeout=1)] == ["a1", "a2"]
        self.nothing(box)
        self.pass_time(1)
        assert self.bodies(self.backend.again(box, str), 3) == ["a1", "a2", "a3"]

    @needs(Capability.GROUPS)
    def test_R16_a_parked_receive_is_served_when_its_group_is_free(self) -> None:
        box = self.grouped("a1", "a2")
        first = self.one(box)
        (parked,) = self.parked(box)
        assert not parked.done
        first.acknowledge()
        assert [m.body for m in parked.result()] == ["a2"]

    @needs(Capability.GROUPS, Capability.DELETE_BY_ID)
    def test_R16_a_parked_receive_is_served_when_what_held_its_group_is_deleted(self) -> None:
        box = self.grouped("a1", "a2")
        first = self.one(box)
        (parked,) = self.parked(box)
        assert box.delete([first.id]) == 1
        assert [m.body for m in parked.result()] == ["a2"]

    @needs(Capability.GROUPS, Capability.DEAD_AT_ONCE)
    def test_R39_the_group_of_a_dead_letter_goes_on(self) -> None:
        box, dead = self.open_mortal(1)
        for body in ("a1", "a2"):
            box.send(body, group="a")
        self.one(box).nack()
        assert self.one(box).body == "a2"
        letter = self.one(dead)
        assert (letter.body, letter.group) == ("a1", "a")

    @needs(Capability.GROUPS)
    def test_R39_a_redriven_message_is_of_its_group_again(self) -> None:
        box, dead = self.open_mortal(1)
        box.send("a1", group="a")
        self.die(box)
        box.send("a2", group="a")
        held = self.one(box)
        assert dead.redrive() == 1
        self.nothing(box)
        held.acknowledge()
        message = self.one(box)
        assert (message.body, message.group) == ("a1", "a")

    @needs(Capability.GROUPS, Capability.DELETE_BY_ID)
    @pytest.mark.parametrize("state", ["ready", "in flight", "nacked for later"])
    def test_R16_a_deleted_message_holds_its_group_no_longer(self, state: str) -> None:
        box = self.grouped("a1", "a2")
        message_id = box.peek(1)[0].id
        if state != "ready":
            held = self.one(box)
            if state == "nacked for later":
                held.nack(visibility_timeout=60)
        assert box.delete([message_id]) == 1
        assert self.one(box).body == "a2"

    @needs(Capability.GROUPS, Capability.PURGE_AT_WILL)
    def test_R3_purge_frees_every_group(self) -> None:
        box = self.grouped("a1", "a2")
        held = self.one(box)
        box.purge()
        box.send("a3", group="a")
        assert self.one(box).body == "a3"
        assert held.nack() is False

    @needs(Capability.GROUPS, Capability.EXACT_COUNT)
    def test_R4_what_waits_behind_its_group_is_counted(self) -> None:
        box = self.grouped("a1", "a2", "a3")
        self.one(box)
        stats = box.stats()
        assert (stats.ready, stats.in_flight, stats.total) == (2, 1, 3)

    @needs(Capability.GROUPS, Capability.PEEK)
    def test_R39_what_waits_behind_its_group_can_be_seen(self) -> None:
        box = self.grouped("a1", "a2", "b1")
        self.one(box)
        assert {m.body for m in box.peek()} == {"a2", "b1"}

    @needs(Capability.GROUPS, Capability.OLDEST_AGE)
    def test_R4_what_waits_behind_its_group_grows_old(self) -> None:
        box = self.grouped("a1", "a2")
        self.one(box, visibility_timeout=30)
        self.pass_time(2)
        age = box.stats().oldest_age_seconds
        assert age is not None
        assert age > 1.9

    @needs(Capability.GROUPS, Capability.MESSAGE_DELAY)
    def test_R1_a_delayed_message_does_not_hold_its_group(self) -> None:
        box = self.open()
        box.send("a1", group="a", delay_seconds=1)
        box.send("a2", group="a")
        message = self.one(box)
        assert message.body == "a2"
        message.acknowledge()
        self.pass_time(1)
        assert self.one(box).body == "a1"
