"""R2, R10, R12, R13, R18: receive, the life cycle of a message, and delivery counts."""

from __future__ import annotations

from pillarbox.testing.contract.backend import Capability, needs
from pillarbox.testing.contract.cases.case import Case


class Receiving(Case):
    def test_R2_receive_is_empty_when_there_is_none(self) -> None:
        assert list(self.open().receive()) == []

    def test_R2_receive_does_not_wait_unless_asked(self) -> None:
        box = self.open()
        assert list(self.call(box.receive).result()) == []

    def test_R2_one_message_unless_more_are_asked_for(self) -> None:
        box = self.open_with("a", "b", "c")
        assert len(box.receive(wait_time_seconds=self.backend.look_seconds)) == 1

    def test_R2_never_more_than_max_messages(self) -> None:
        box = self.open()
        box.send_many([str(n) for n in range(8)])
        sizes = [len(box.receive(max_messages=3)) for _ in range(4)]
        assert max(sizes) <= 3
        assert sum(sizes) > 0

    @needs(Capability.FULL_BATCH)
    def test_R2_as_many_as_there_are_up_to_max_messages(self) -> None:
        box = self.open()
        box.send_many([str(n) for n in range(5)])
        assert [len(box.receive(max_messages=3)) for _ in range(3)] == [3, 2, 0]

    @needs(Capability.FULL_BATCH)
    def test_R2_fewer_than_max_messages_are_no_error(self) -> None:
        box = self.open_with("a", "b")
        assert len(box.receive(max_messages=10)) == 2

    @needs(Capability.FULL_BATCH, Capability.BIG_BATCH)
    def test_R2_hundreds_of_messages_at_a_time(self) -> None:
        box = self.open()
        box.send_many([str(n) for n in range(500)])
        received = box.receive(max_messages=500)
        assert sorted(int(m.body) for m in received) == list(range(500))

    @needs(Capability.TIME_TRAVEL)
    def test_R2_a_lease_is_thirty_seconds_unless_said_otherwise(self) -> None:
        box = self.open_with("a")
        self.one(box)
        self.pass_time(29)
        self.nothing(box)
        self.pass_time(1)
        assert self.one(box).body == "a"

    @needs(Capability.STRICT_LEASES)
    def test_R2_a_lease_of_no_time_is_over_at_once(self) -> None:
        box = self.open_with("a")
        glimpsed = self.one(box, visibility_timeout=0)
        assert glimpsed.acknowledge() is False
        again = self.one(box)
        assert (again.id, again.delivery_count) == (glimpsed.id, 2)

    def test_R10_received_then_acknowledged_is_gone(self) -> None:
        box = self.open_with("a")
        assert self.one(box, visibility_timeout=2).acknowledge()
        self.pass_time(2)
        self.empty(box)

    def test_R10_received_then_nacked_is_ready(self) -> None:
        box = self.open_with("a")
        assert self.one(box).nack()
        assert self.one(box).body == "a"

    def test_R10_received_then_forgotten_is_ready_after_its_lease(self) -> None:
        box = self.open_with("a")
        self.one(box, visibility_timeout=2)
        self.pass_time(2)
        assert self.one(box).body == "a"

    @needs(Capability.EXACT_COUNT)
    def test_R10_each_step_of_a_life_shows_in_the_stats(self) -> None:
        box = self.open()

        def states() -> tuple[int, int, int]:
            stats = box.stats()
            return stats.ready, stats.scheduled, stats.in_flight

        box.send("a", delay_seconds=1)
        assert states() == (0, 1, 0)
        self.pass_time(1)
        assert states() == (1, 0, 0)
        first = self.one(box)
        assert states() == (0, 0, 1)
        first.nack()
        assert states() == (1, 0, 0)
        self.one(box).acknowledge()
        assert states() == (0, 0, 0)

    def test_R12_what_was_not_acknowledged_comes_again_as_it_was(self) -> None:
        box = self.open()
        message_id = box.send("a", attributes={"colour": "red"})
        first = self.one(box, visibility_timeout=2)
        self.pass_time(2)
        second = self.one(box)
        assert (second.id, second.body) == (message_id, "a")
        assert dict(second.attributes) == {"colour": "red"}
        assert second.enqueued_at == first.enqueued_at

    def test_R12_it_comes_again_and_again(self) -> None:
        box = self.open_with("a")
        for delivery in range(1, 8):
            message = self.one(box)
            assert message.delivery_count == delivery
            assert message.nack()
        assert self.one(box).acknowledge()
        self.nothing(box)

    def test_R13_in_flight_is_hidden_from_the_same_consumer(self) -> None:
        box = self.open_with("a")
        self.one(box, visibility_timeout=3)
        self.nothing(box)
        self.pass_time(1)
        self.nothing(box)

    def test_R13_in_flight_is_hidden_from_every_other_consumer(self) -> None:
        box = self.open()
        other = self.backend.again(box, str)
        box.send("a")
        self.one(box, visibility_timeout=3)
        self.nothing(other)
        self.pass_time(3)
        assert self.one(other).body == "a"

    def test_R13_what_one_holds_does_not_hide_the_rest(self) -> None:
        box = self.open_with("a", "b")
        held = self.one(box)
        rest = self.one(self.backend.again(box, str))
        assert {held.body, rest.body} == {"a", "b"}

    def test_R18_the_first_delivery_is_number_one(self) -> None:
        box = self.open_with("now")
        box.send("later", delay_seconds=1)
        self.pass_time(1)
        assert [m.delivery_count for m in self.take(box, 2)] == [1, 1]

    def test_R18_the_count_grows_with_each_nack(self) -> None:
        box = self.open_with("a")
        self.one(box).nack()
        self.one(box).nack(visibility_timeout=1)
        self.pass_time(1)
        assert self.one(box).delivery_count == 3

    def test_R18_the_count_grows_when_a_lease_runs_out(self) -> None:
        box = self.open_with("a")
        for delivery in (1, 2):
            assert self.one(box, visibility_timeout=1).delivery_count == delivery
            self.pass_time(1)
        assert self.one(box).delivery_count == 3

    def test_R18_an_extended_lease_is_the_same_delivery(self) -> None:
        box = self.open_with("a")
        held = self.one(box)
        held.extend_visibility(30)
        held.nack()
        assert self.one(box).delivery_count == 2

    def test_R18_each_message_has_its_own_count(self) -> None:
        box = self.open_with("a", "b")
        for message in self.take(box, 2):
            if message.body == "a":
                message.nack()
        assert [(m.body, m.delivery_count) for m in self.take(box, 1)] == [("a", 2)]

    def test_R18_the_count_is_the_same_for_every_consumer(self) -> None:
        box = self.open_with("a")
        self.one(box).nack()
        assert self.one(self.backend.again(box, str)).delivery_count == 2
