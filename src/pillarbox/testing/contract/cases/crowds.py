"""R19, R20: many consumers and many threads; each message has one holder at a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from threading import Barrier
from time import monotonic
from typing import Any, TypeVar

from pillarbox.mailbox.protocol import Mailbox
from pillarbox.testing.contract.backend import Capability, needs
from pillarbox.testing.contract.cases.case import Case

R = TypeVar("R")

THREADS = 4


class Crowds(Case):
    def together(self, work: Callable[[int], R], threads: int = THREADS) -> list[R]:
        """Call a function in several threads at the same time; return their results."""
        gate = Barrier(threads)

        def run(number: int) -> R:
            gate.wait()
            return work(number)

        calls = [self.call(lambda n=n: run(n)) for n in range(threads)]  # type: ignore[misc]
        return [call.result() for call in calls]

    def drain(self, box: Mailbox[Any], total: int, seen: list[str], size: int = 1) -> None:
        """Receive and acknowledge until all messages have been received by some consumer."""
        until = monotonic() + self.backend.patience_seconds
        while len(seen) < total and monotonic() < until:
            messages = box.receive(max_messages=size)
            seen.extend(m.body for m in messages)
            assert all(box.acknowledge_many(messages))

    def test_R19_two_consumers_never_hold_the_same_message(self) -> None:
        box = self.open()
        other = self.backend.again(box, str)
        box.send_many([str(n) for n in range(10)])
        mine = self.bodies(box, 5)
        theirs = self.bodies(other, 5)
        assert sorted(mine + theirs) == [str(n) for n in range(10)]

    def test_R19_the_load_is_spread_over_those_who_wait(self) -> None:
        box = self.open()
        faces = [self.backend.again(box, str) for _ in range(THREADS)]
        calls = []
        for number, face in enumerate(faces, 1):
            calls.append(self.park(face))
            self.backend.wait_until_parked(box, number)
        box.send_many([str(n) for n in range(THREADS)])
        assert sorted(call.result()[0].body for call in calls) == ["0", "1", "2", "3"]

    def test_R19_what_a_crashed_consumer_held_comes_back_to_another(self) -> None:
        box = self.open_with("a", "b", "c")
        crashed = self.take(box, 3, visibility_timeout=2)
        survivor = self.backend.again(box, str)
        self.nothing(survivor)
        self.pass_time(2)
        messages = self.take(survivor, 3)
        assert sorted(m.body for m in messages) == ["a", "b", "c"]
        assert [m.delivery_count for m in messages] == [2, 2, 2]
        assert box.acknowledge_many(crashed) == [False, False, False]
        assert survivor.acknowledge_many(messages) == [True, True, True]

    def test_R19_a_slow_consumer_that_extends_is_not_taken_for_a_crashed_one(self) -> None:
        box = self.open()
        other = self.backend.again(box, str)
        box.send("a")
        slow = self.one(box, visibility_timeout=2)
        for _ in range(3):
            self.pass_time(1)
            assert slow.extend_visibility(2)
            self.nothing(other)
        assert slow.acknowledge() is True

    def test_R20_messages_sent_by_many_threads_all_arrive(self) -> None:
        box = self.open()
        each = self.backend.crowd_messages
        sent = self.together(lambda n: [box.send(f"{n}-{i}") for i in range(each)])
        ids = [message_id for part in sent for message_id in part]
        assert len(set(ids)) == THREADS * each
        received = self.take_all(box, THREADS * each)
        assert sorted(received) == sorted(ids)

    @needs(Capability.FAIR)
    def test_R151_many_consumers_of_a_fair_queue_share_what_tenants_sent(self) -> None:
        box = self.open(fair=True)
        each = self.backend.crowd_messages // 5
        for tenant in ("a", "a", "a", "b", None):
            box.send_many([f"{tenant}-{n}" for n in range(each)], group=tenant)
        faces = [self.backend.again(box, str) for _ in range(THREADS)]
        seen: list[str] = []
        self.together(lambda n: self.drain(faces[n], 5 * each, seen, size=1 + n))
        assert Counter(seen) == Counter(
            f"{tenant}-{n}" for tenant in ("a", "a", "a", "b", None) for n in range(each)
        )
        self.empty(box)

    def take_all(self, box: Mailbox[Any], total: int) -> list[str]:
        """Receive this many messages and return their ids."""
        ids: list[str] = []
        empty_handed = 0
        while len(ids) < total and empty_handed < 50:
            messages = box.receive(max_messages=10, wait_time_seconds=self.backend.look_seconds)
            empty_handed = 0 if messages else empty_handed + 1
            ids += [m.id for m in messages]
            box.acknowledge_many(messages)
        return ids

    def test_R20_each_thread_s_messages_stay_in_its_order(self) -> None:
        box = self.open()
        each = self.backend.crowd_messages // 5
        self.together(lambda n: [box.send(f"{n}-{i}") for i in range(each)])
        bodies = self.bodies_of_all(box, THREADS * each)
        for number in range(THREADS):
            own = [body for body in bodies if body.startswith(f"{number}-")]
            self.same_items(own, [f"{number}-{i}" for i in range(each)])

    def bodies_of_all(self, box: Mailbox[Any], total: int) -> list[str]:
        return [body for _ in range(total // 10) for body in self.bodies(box, 10)]

    def test_R20_every_message_exactly_once_when_nobody_s_lease_runs_out(self) -> None:
        box = self.open()
        each = self.backend.crowd_messages
        total = THREADS * each
        seen: list[str] = []

        def work(number: int) -> None:
            if number % 2:
                self.drain(box, total, seen)
            else:
                for i in range(each * 2):
                    box.send(f"{number}-{i}")

        self.together(work)
        assert len(seen) == len(set(seen)) == total
        self.counts(box, 0)

    def test_R20_batches_of_many_threads_are_exactly_once_too(self) -> None:
        box = self.open()
        each = self.backend.crowd_messages
        total = THREADS * each
        seen: list[str] = []

        def work(number: int) -> None:
            if number % 2:
                self.drain(box, total, seen, size=10)
            else:
                for i in range(each * 2 // 10):
                    box.send_many([f"{number}-{i}-{j}" for j in range(10)])

        self.together(work)
        assert len(seen) == len(set(seen)) == total
        self.counts(box, 0)

    def test_R20_no_wake_up_is_lost(self) -> None:
        box = self.open()
        each = self.backend.crowd_messages // 5

        def work(number: int) -> list[str]:
            if number % 2 == 0:
                return [box.send(f"{number}-{i}") and f"{number}-{i}" for i in range(each)]
            got: list[str] = []
            while len(got) < each:
                for message in box.receive(wait_time_seconds=20):
                    got.append(message.body)
                    message.acknowledge()
            return got

        answers = self.together(work)
        assert sorted(answers[0] + answers[2]) == sorted(answers[1] + answers[3])

    def test_R20_one_message_contested_by_many_goes_to_one(self) -> None:
        box = self.open()
        for _ in range(20):
            box.send("a")
            winners = [m for part in self.together(lambda n: box.receive()) for m in part]
            assert len(winners) == 1
            assert winners[0].acknowledge() is True

    def test_R20_a_message_acknowledged_by_many_is_acknowledged_once(self) -> None:
        box = self.open()
        for _ in range(20):
            box.send("a")
            message = self.one(box)
            answers = self.together(lambda n, m=message: m.acknowledge())  # type: ignore[misc]
            assert Counter(answers) == {True: 1, False: THREADS - 1}

    def test_R20_of_acknowledge_and_nack_at_once_one_wins(self) -> None:
        box = self.open()
        for _ in range(20):
            box.send("a")
            message = self.one(box)
            acknowledged, nacked = self.together(
                lambda n, m=message: m.nack() if n else m.acknowledge(),  # type: ignore[misc]
                threads=2,
            )
            assert acknowledged is not nacked
            if nacked:
                assert self.one(box).acknowledge() is True
        self.counts(box, 0)

    @needs(Capability.PURGE_AT_WILL, Capability.PURGE_TELLS_HOLDERS)
    def test_R20_purge_and_acknowledge_at_once_agree(self) -> None:
        box = self.open()
        for _ in range(20):
            box.send("a")
            message = self.one(box)
            answers = self.together(
                lambda n, m=message: box.purge() if n else int(m.acknowledge()),  # type: ignore[misc]
                threads=2,
            )
            assert sum(answers) == 1
        self.counts(box, 0)
