"""R14: a waiting receive gets a message as soon as there is one, without polling."""

from __future__ import annotations

from concurrent.futures import FIRST_COMPLETED, wait

from pillarbox.testing.contract.backend import Capability, needs
from pillarbox.testing.contract.cases.case import Case


class Waiting(Case):
    def test_R14_a_parked_receive_is_served_by_send(self) -> None:
        box = self.open()
        (parked,) = self.parked(box)
        message_id = self.backend.again(box, str).send("a")
        (message,) = parked.result()
        assert (message.id, message.body, message.delivery_count) == (message_id, "a", 1)
        assert message.acknowledge() is True

    def test_R14_a_parked_receive_is_served_by_nack(self) -> None:
        box = self.open_with("a")
        held = self.one(box)
        (parked,) = self.parked(box)
        held.nack()
        assert [m.delivery_count for m in parked.result()] == [2]

    def test_R14_a_parked_receive_is_served_by_release(self) -> None:
        box = self.open_with("a")
        held = self.one(box)
        (parked,) = self.parked(box)
        held.release()
        assert [m.id for m in parked.result()] == [held.id]

    def test_R14_a_parked_receive_is_served_when_a_delay_is_over(self) -> None:
        box = self.open()
        box.send("a", delay_seconds=2)
        (parked,) = self.parked(box)
        assert not parked.done
        self.pass_time(2)
        assert [m.body for m in parked.result()] == ["a"]

    def test_R14_a_parked_receive_is_served_by_a_delay_that_began_later(self) -> None:
        box = self.open()
        (parked,) = self.parked(box)
        box.send("a", delay_seconds=2)
        assert not parked.done
        self.pass_time(2)
        assert [m.body for m in parked.result()] == ["a"]

    def test_R14_a_parked_receive_is_served_when_a_lease_runs_out(self) -> None:
        box = self.open_with("a")
        self.one(box, visibility_timeout=2)
        (parked,) = self.parked(box)
        assert not parked.done
        self.pass_time(2)
        assert [m.delivery_count for m in parked.result()] == [2]

    def test_R14_a_parked_receive_is_served_when_a_delayed_nack_is_over(self) -> None:
        box = self.open_with("a")
        held = self.one(box)
        (parked,) = self.parked(box)
        held.nack(visibility_timeout=2)
        assert not parked.done
        self.pass_time(2)
        assert [m.delivery_count for m in parked.result()] == [2]

    def test_R14_a_parked_receive_is_served_when_a_lease_is_cut_short(self) -> None:
        box = self.open_with("a")
        held = self.one(box, visibility_timeout=600)
        (parked,) = self.parked(box)
        held.extend_visibility(1)
        self.pass_time(1)
        assert [m.delivery_count for m in parked.result()] == [2]

    def test_R14_it_returns_with_one_message_and_never_waits_to_fill_a_batch(self) -> None:
        box = self.open()
        (parked,) = self.parked(box, max_messages=10)
        box.send("a")
        assert [m.body for m in parked.result()] == ["a"]

    @needs(Capability.FULL_BATCH)
    def test_R14_a_parked_receive_takes_all_of_a_batch_that_it_asked_for(self) -> None:
        box = self.open()
        (parked,) = self.parked(box, max_messages=3)
        box.send_many(["a", "b", "c", "d"])
        self.same_items([m.body for m in parked.result()], ["a", "b", "c"])
        assert self.one(box).body == "d"

    def test_R14_a_partial_batch_during_a_long_poll_returns_at_once_and_never_twice(self) -> None:
        box = self.open()
        (parked,) = self.parked(box, max_messages=10)
        box.send_many(["a", "b"])
        got = [m.body for m in parked.result()]
        box.send("c")
        rest = self.bodies(box, 3 - len(got))
        assert sorted(got + rest) == ["a", "b", "c"]
        self.nothing(box)

    def test_R14_with_messages_there_nobody_waits(self) -> None:
        box = self.open_with("a")
        call = self.park(box, max_messages=10)
        assert [m.body for m in call.result()] == ["a"]

    def test_R14_a_wait_ends_empty_when_the_time_is_up_and_not_before(self) -> None:
        box = self.open()
        (parked,) = self.parked(box, wait_time_seconds=3)
        self.pass_time(1)
        assert not parked.done
        self.pass_time(2)
        assert list(parked.result()) == []

    def test_R14_what_comes_after_the_wait_is_left_for_others(self) -> None:
        box = self.open()
        (parked,) = self.parked(box, wait_time_seconds=1)
        self.pass_time(1)
        assert list(parked.result()) == []
        box.send("a")
        assert self.one(box).delivery_count == 1

    def test_R14_a_lease_begins_with_the_delivery_not_with_the_wait(self) -> None:
        box = self.open()
        (parked,) = self.parked(box, visibility_timeout=3)
        self.pass_time(2)
        box.send("a")
        (message,) = parked.result()
        self.pass_time(2)
        self.nothing(box)
        assert message.acknowledge() is True

    def test_R14_the_lease_that_a_parked_receive_asked_for_runs_out(self) -> None:
        box = self.open()
        (parked,) = self.parked(box, visibility_timeout=1)
        box.send("a")
        assert len(parked.result()) == 1
        self.pass_time(1)
        assert self.one(box).delivery_count == 2

    def test_R14_one_send_serves_exactly_one_of_many(self) -> None:
        box = self.open()
        calls = self.parked(box, 5)
        box.send("a")
        wait([call.future for call in calls], self.backend.patience_seconds, FIRST_COMPLETED)
        assert sum(call.done for call in calls) == 1
        box.close()
        assert sum(len(call.result()) for call in calls) == 1

    def test_R14_many_sends_serve_many_one_each(self) -> None:
        box = self.open()
        calls = self.parked(box, 5)
        sent = {box.send(str(n)) for n in range(5)}
        received = [[m.id for m in call.result()] for call in calls]
        assert sorted(map(len, received)) == [1, 1, 1, 1, 1]
        assert {ids[0] for ids in received} == sent

    def test_R14_a_batch_serves_several_that_are_parked(self) -> None:
        box = self.open()
        calls = self.parked(box, 3)
        box.send_many(["a", "b", "c"])
        assert sorted(call.result()[0].body for call in calls) == ["a", "b", "c"]

    @needs(Capability.FIRST_COME_FIRST_SERVED)
    def test_R14_first_come_first_served(self) -> None:
        box = self.open()
        calls = self.parked(box, 4)
        for number, call in enumerate(calls):
            box.send(str(number))
            assert [m.body for m in call.result()] == [str(number)]

    def test_R14_a_send_elsewhere_wakes_nobody_here(self) -> None:
        box, other = self.open(), self.open()
        (parked,) = self.parked(box, wait_time_seconds=2)
        other.send("elsewhere")
        assert not parked.done
        self.pass_time(2)
        assert list(parked.result()) == []
        assert self.one(other).body == "elsewhere"

    def test_R14_a_parked_receive_survives_a_purge(self) -> None:
        box = self.open()
        (parked,) = self.parked(box)
        box.purge()
        assert not parked.done
        box.send("a")
        assert [m.body for m in parked.result()] == ["a"]

    def test_R14_waiting_leaves_nothing_behind(self) -> None:
        box = self.open()
        for _ in range(2):
            (parked,) = self.parked(box, wait_time_seconds=1)
            self.pass_time(1)
            assert list(parked.result()) == []
        box.send("a")
        assert self.one(box).delivery_count == 1

    @needs(Capability.DEAD_AT_ONCE)
    def test_R39_a_receive_parked_on_dead_letters_is_served_when_one_dies_by_nack(self) -> None:
        box, dead = self.open_mortal(sent="a")
        held = self.one(box)
        (parked,) = self.parked(dead)
        held.nack()
        assert [m.id for m in parked.result()] == [held.id]

    @needs(Capability.DEAD_AT_ONCE)
    def test_R39_a_receive_parked_on_dead_letters_is_served_when_a_last_lease_ends(self) -> None:
        box, dead = self.open_mortal(sent="a")
        held = self.one(box, visibility_timeout=2)
        (parked,) = self.parked(dead)
        assert not parked.done
        self.pass_time(2)
        assert [m.id for m in parked.result()] == [held.id]

    @needs(Capability.DEAD_AT_ONCE)
    def test_R39_a_receive_parked_on_dead_letters_is_served_by_a_lease_that_began_later(
        self,
    ) -> None:
        box, dead = self.open_mortal()
        (parked,) = self.parked(dead)
        box.send("a")
        held = self.one(box, visibility_timeout=2)
        assert not parked.done
        self.pass_time(2)
        assert [m.id for m in parked.result()] == [held.id]

    @needs(Capability.REJECT)
    def test_R39_a_receive_parked_on_dead_letters_is_served_by_reject(self) -> None:
        box, dead = self.open_mortal(5, sent="a")
        held = self.one(box)
        (parked,) = self.parked(dead)
        held.reject("no good")
        assert [m.id for m in parked.result()] == [held.id]

    @needs(Capability.REDRIVE, Capability.REDRIVE_KEEPS_ID)
    def test_R39_a_receive_parked_on_the_source_is_served_by_redrive(self) -> None:
        box, dead = self.open_mortal(sent="a")
        message_id = self.die(box)
        (parked,) = self.parked(box)
        assert dead.redrive() == 1
        assert [m.id for m in parked.result()] == [message_id]
