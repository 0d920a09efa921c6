"""R3, R4: purge, and the counts of a mailbox."""

from __future__ import annotations

from pillarbox.testing.contract.backend import Capability, needs
from pillarbox.testing.contract.cases.case import Case


class Counting(Case):
    @needs(Capability.EXACT_COUNT, Capability.PURGE_AT_WILL)
    def test_R3_purge_answers_with_how_many_there_were_in_any_state(self) -> None:
        box = self.open_with("in flight", "ready", "ready")
        box.send("scheduled", delay_seconds=60)
        self.one(box)
        assert box.purge() == 4
        assert box.approximate_count() == 0

    @needs(Capability.PURGE_AT_WILL)
    def test_R3_what_was_purged_never_comes(self) -> None:
        box = self.open_with("ready")
        box.send("in flight")
        box.send("scheduled", delay_seconds=2)
        self.one(box, visibility_timeout=2)
        box.purge()
        self.nothing(box)
        self.pass_time(2)
        self.nothing(box)

    @needs(Capability.PURGE_AT_WILL)
    def test_R3_purge_of_an_empty_mailbox_is_zero(self) -> None:
        box = self.open()
        assert box.purge() == 0
        box.send("a")
        box.purge()
        assert box.purge() == 0

    @needs(Capability.PURGE_AT_WILL)
    def test_R3_a_purged_mailbox_goes_on(self) -> None:
        box = self.open()
        box.send("before", priority=3)
        held = self.one(box)
        box.purge()
        box.send("after")
        held.nack()
        message = self.one(box)
        assert (message.body, message.delivery_count) == ("after", 1)
        assert message.acknowledge() is True
        self.nothing(box)

    @needs(Capability.PURGE_AT_WILL)
    def test_R3_purge_is_for_every_mailbox_object_of_the_queue(self) -> None:
        box = self.open_with("a")
        other = self.backend.again(box, str)
        other.purge()
        self.nothing(box)

    @needs(Capability.PURGE_AT_WILL)
    def test_R3_purge_leaves_other_queues_and_the_dead_letters_alone(self) -> None:
        box, dead = self.open_mortal()
        other = self.open()
        other.send("elsewhere")
        box.send("to die")
        self.die(box)
        box.send("to purge")
        box.purge()
        self.nothing(box)
        assert self.one(dead).body == "to die"
        assert self.one(other).body == "elsewhere"

    @needs(Capability.PURGE_AT_WILL)
    def test_R39_purge_of_the_dead_letters_leaves_the_source_alone(self) -> None:
        box, dead = self.open_mortal(sent="to die")
        self.die(box)
        box.send("alive")
        assert dead.purge() == 1
        self.nothing(dead)
        assert self.one(box).body == "alive"

    @needs(Capability.EXACT_COUNT)
    def test_R4_the_count_is_ready_and_scheduled_and_in_flight(self) -> None:
        box = self.open()
        assert box.approximate_count() == 0
        box.send_many(["a", "b"])
        assert box.approximate_count() == 2
        box.send("c", delay_seconds=60)
        assert box.approximate_count() == 3
        held = self.one(box)
        assert box.approximate_count() == 3
        held.acknowledge()
        assert box.approximate_count() == 2

    @needs(Capability.EXACT_COUNT)
    def test_R4_the_stats_split_the_count(self) -> None:
        box = self.open_with("a", "b", "c", "d", "e")
        box.send_many(["x", "y"], delay_seconds=60)
        self.take(box, 3)
        stats = box.stats()
        assert (stats.ready, stats.scheduled, stats.in_flight) == (2, 2, 3)
        assert stats.total == box.approximate_count() == 7

    @needs(Capability.EXACT_COUNT)
    def test_R4_a_delay_that_is_over_counts_as_ready_though_nobody_received(self) -> None:
        box = self.open()
        box.send("a", delay_seconds=1)
        self.pass_time(1)
        stats = box.stats()
        assert (stats.ready, stats.scheduled, stats.in_flight) == (1, 0, 0)

    @needs(Capability.EXACT_COUNT)
    def test_R4_a_lease_that_ran_out_counts_as_ready_though_nobody_received(self) -> None:
        box = self.open_with("a")
        self.one(box, visibility_timeout=1)
        self.pass_time(1)
        stats = box.stats()
        assert (stats.ready, stats.scheduled, stats.in_flight) == (1, 0, 0)

    @needs(Capability.EXACT_COUNT, Capability.DEAD_AT_ONCE)
    def test_R4_dead_letters_are_counted_apart(self) -> None:
        box, dead = self.open_mortal()
        box.send_many(["to die", "to die too", "alive"])
        self.one(box).nack()
        self.one(box, visibility_timeout=1)
        self.pass_time(1)
        stats = box.stats()
        assert (stats.ready, stats.in_flight, stats.dead, stats.total) == (1, 0, 2, 1)
        assert dead.approximate_count() == 2
        assert dead.stats().dead == 0

    @needs(Capability.EXACT_COUNT, Capability.DEAD_AT_ONCE)
    def test_R4_the_dead_are_counted_when_a_last_lease_ran_out_though_nobody_looked(self) -> None:
        box, dead = self.open_mortal(sent="a")
        self.one(box, visibility_timeout=1)
        self.pass_time(1)
        assert dead.approximate_count() == 1
        assert box.approximate_count() == 0

    @needs(Capability.EXACT_COUNT)
    def test_R4_the_count_is_the_same_through_every_mailbox_object(self) -> None:
        box = self.open_with("a", "b")
        self.one(box)
        mine, theirs = box.stats(), self.backend.again(box, str).stats()
        assert (theirs.ready, theirs.in_flight, theirs.total) == (1, 1, 2)
        assert (mine.ready, mine.in_flight, mine.total) == (1, 1, 2)

    @needs(Capability.OLDEST_AGE)
    def test_R4_the_age_of_the_oldest(self) -> None:
        box = self.open()
        assert box.stats().oldest_age_seconds is None
        box.send("old")
        self.pass_time(2)
        box.send("young")
        age = box.stats().oldest_age_seconds
        assert age is not None
        assert 1.9 < age < 60

    @needs(Capability.OLDEST_AGE)
    def test_R4_the_age_is_that_of_what_is_left(self) -> None:
        box = self.open_with("old")
        self.pass_time(2)
        box.send("young")
        self.one(box).acknowledge()
        age = box.stats().oldest_age_seconds
        assert age is not None
        assert age < 1.9

    @needs(Capability.OLDEST_AGE, Capability.PRIORITY)
    def test_R4_the_oldest_may_have_the_lowest_priority(self) -> None:
        box = self.open()
        box.send("old", priority=0)
        self.pass_time(2)
        box.send("young", priority=9)
        age = box.stats().oldest_age_seconds
        assert age is not None
        assert age > 1.9

    @needs(Capability.EXACT_COUNT)
    def test_R4_looking_changes_nothing(self) -> None:
        box = self.open_with("a", "b")
        for _ in range(3):
            box.stats()
            box.approximate_count()
        assert [m.delivery_count for m in self.take(box, 2)] == [1, 1]
