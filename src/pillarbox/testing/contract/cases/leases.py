"""R6, R7, R8: acknowledge, nack and extend while the lease is valid."""

from __future__ import annotations

from pillarbox.testing.contract.backend import Capability, needs
from pillarbox.testing.contract.cases.case import Case


class Leases(Case):
    def test_R6_acknowledge_answers_true(self) -> None:
        box = self.open_with("a")
        assert self.one(box).acknowledge() is True

    def test_R6_an_acknowledged_message_never_comes_again(self) -> None:
        box = self.open_with("a")
        self.one(box, visibility_timeout=1).acknowledge()
        self.nothing(box)
        self.pass_time(2)
        self.nothing(box)

    @needs(Capability.EXACT_COUNT)
    def test_R6_an_acknowledged_message_is_in_no_count(self) -> None:
        box = self.open_with("a")
        self.one(box).acknowledge()
        stats = box.stats()
        assert (stats.ready, stats.scheduled, stats.in_flight, stats.total) == (0, 0, 0, 0)
        assert stats.oldest_age_seconds is None

    def test_R6_acknowledge_deletes_that_message_only(self) -> None:
        box = self.open_with("a", "b", "c")
        for message in self.take(box, 3, visibility_timeout=2):
            if message.body == "b":
                assert message.acknowledge()
        self.pass_time(2)
        self.same_items(self.bodies(box, 2), ["a", "c"])
        self.nothing(box)

    def test_R6_messages_may_be_acknowledged_in_any_order(self) -> None:
        box = self.open_with("a", "b", "c")
        messages = self.take(box, 3)
        assert [message.acknowledge() for message in reversed(messages)] == [True, True, True]
        self.counts(box, 0)

    def test_R6_a_message_may_be_acknowledged_late_in_its_lease(self) -> None:
        box = self.open_with("a")
        held = self.one(box, visibility_timeout=3)
        self.pass_time(2)
        assert held.acknowledge() is True

    def test_R6_a_redelivered_message_can_be_acknowledged(self) -> None:
        box = self.open_with("a")
        self.one(box).nack()
        assert self.one(box).acknowledge() is True
        self.counts(box, 0)

    def test_R7_nack_answers_true_and_shows_the_message_at_once(self) -> None:
        box = self.open_with("a")
        assert self.one(box).nack() is True
        assert self.one(self.backend.again(box, str)).body == "a"

    def test_R7_nack_with_a_time_shows_the_message_after_it(self) -> None:
        box = self.open_with("a")
        assert self.one(box).nack(visibility_timeout=3) is True
        self.nothing(box)
        self.pass_time(1)
        self.nothing(box)
        self.pass_time(2)
        assert self.one(box).body == "a"

    def test_R7_the_time_of_a_nack_counts_from_the_nack(self) -> None:
        box = self.open_with("a")
        held = self.one(box, visibility_timeout=2)
        self.pass_time(1)
        held.nack(visibility_timeout=3)
        self.pass_time(1)
        self.nothing(box)
        self.pass_time(2)
        assert self.one(box).body == "a"

    def test_R7_a_nack_may_be_shorter_than_the_lease_was(self) -> None:
        box = self.open_with("a")
        self.one(box, visibility_timeout=30).nack(visibility_timeout=1)
        self.pass_time(1)
        assert self.one(box).body == "a"

    def test_R7_a_nacked_message_is_still_counted(self) -> None:
        box = self.open_with("a", "b")
        first, second = self.take(box, 2)
        first.nack()
        second.nack(visibility_timeout=2)
        self.counts(box, 2)

    @needs(Capability.FIFO_ORDER, Capability.TAIL)
    def test_R7_delayed_nacks_come_back_in_the_order_of_their_times(self) -> None:
        box = self.open_with("a", "b", "c")
        for message, delay in zip(self.take(box, 3), (3, 1, 2), strict=True):
            message.nack(visibility_timeout=delay)
        self.pass_time(3)
        assert self.bodies(box, 3) == ["b", "c", "a"]

    def test_R8_extend_answers_true_and_postpones_the_end(self) -> None:
        box = self.open_with("a")
        held = self.one(box, visibility_timeout=2)
        self.pass_time(1)
        assert held.extend_visibility(4) is True
        self.pass_time(2)
        self.nothing(box)
        assert held.acknowledge() is True

    def test_R8_the_new_end_counts_from_now(self) -> None:
        box = self.open_with("a")
        held = self.one(box, visibility_timeout=30)
        assert held.extend_visibility(1) is True
        self.pass_time(1)
        assert self.one(box).body == "a"

    def test_R8_an_extended_lease_runs_out_too(self) -> None:
        box = self.open_with("a")
        held = self.one(box, visibility_timeout=1)
        held.extend_visibility(3)
        self.pass_time(3)
        assert self.one(box).delivery_count == 2

    def test_R8_a_lease_may_be_extended_again_and_again(self) -> None:
        box = self.open_with("a")
        held = self.one(box, visibility_timeout=2)
        for _ in range(3):
            self.pass_time(1)
            assert held.extend_visibility(2) is True
            self.nothing(box)
        assert held.acknowledge() is True

    def test_R8_extending_by_nothing_ends_the_lease(self) -> None:
        box = self.open_with("a")
        held = self.one(box)
        assert held.extend_visibility(0) is True
        assert self.one(self.backend.again(box, str)).delivery_count == 2

    def test_R8_extend_concerns_that_message_only(self) -> None:
        box = self.open_with("a", "b")
        kept, let_go = self.take(box, 2, visibility_timeout=1)
        kept.extend_visibility(5)
        self.pass_time(1)
        assert self.bodies(box, 1) == [let_go.body]
        self.nothing(box)

    @needs(Capability.TIME_TRAVEL)
    def test_R8_many_different_leases_each_end_at_their_own_time(self) -> None:
        box = self.open()
        box.send_many([str(n) for n in range(20)])
        for message in self.take(box, 20):
            message.extend_visibility(1 + (int(message.body) * 7) % 20)
        ended = []
        for _ in range(20):
            self.pass_time(1)
            ended.append(self.one(box, visibility_timeout=1_000).body)
        assert [1 + (int(body) * 7) % 20 for body in ended] == list(range(1, 21))
