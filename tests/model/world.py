"""A store's queues and the naive model side by side: each step is asked of both.

A world has a main queue, another one and the dead-letter queue of both, behind the locks,
timers and parked receivers of a real store. A step is a jump of the clock and one call.
Afterwards everything that can be seen of the queues must be equal, and what must always hold
inside a queue is checked. A difference is an AssertionError.
"""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Callable, Sequence
from typing import Any

from pillarbox.clock import SystemClock
from pillarbox.core import decide, fair, journal
from pillarbox.core import events as e
from pillarbox.core.errors import InvalidParameterError, MailboxFullError
from pillarbox.core.queue import (
    NEVER,
    Extra,
    Lease,
    Queue,
    Settings,
    in_order,
    next_deadline,
)
from pillarbox.mailbox import queue_steps
from pillarbox.mailbox.queue_session import QueueSession
from pillarbox.mailbox.queue_steps import Written
from pillarbox.mailbox.store import Store
from tests.model import naive
from tests.model.sameness import check_inside, compare, snapshot

START = 1_700_000_000_000_000_001
MS, SECOND, HOUR = 10**6, 10**9, 3600 * 10**9

# Jumps of the clock; those below zero go to a moment that matters, or to just before it.
TO_DEADLINE, BEFORE_DEADLINE, TO_FORGETTING, BEFORE_FORGETTING = -1, -2, -3, -4
JUMPS = (
    *(0, 0, 0, 0, 0, 0, 1, 1, 2, 3, MS, 17 * MS, SECOND, 5 * SECOND, 60 * SECOND, HOUR, 13 * HOUR),
    *(TO_DEADLINE, TO_DEADLINE, TO_DEADLINE, BEFORE_DEADLINE, TO_FORGETTING, BEFORE_FORGETTING),
)
# More than the lines of leases.py, so that some leases are unusual.
TIMEOUTS = (
    *(0, 1, 2, MS, SECOND, 2 * SECOND, 3 * SECOND, 5 * SECOND, 10 * SECOND, 30 * SECOND),
    *(31 * SECOND, 60 * SECOND, 90 * SECOND, 120 * SECOND, 300 * SECOND, HOUR, 2 * HOUR, 12 * HOUR),
)
DELAYS = (0, 0, 0, 0, 1, 2, 5, MS, SECOND, 5 * SECOND, 60 * SECOND, HOUR)
PRIORITIES = (0, 0, 0, 1, 1, 2, 7, 254, 255)
GROUPS = (None, "a", "b", "c", "d")
DEDUPLICATIONS = (None, "x", "y", "z")
VERBS = ("acknowledge", "nack", "release", "extend", "reject")

NAMES = ("main", "other", "dead")
MAIN, OTHER, DEAD = 0, 1, 2
_PAIRS_KEPT_MAX = 80  # receipts that a world remembers, live and stale

MessageSpec = tuple[int, "str | None", "str | None"]  # priority, group, deduplication id


def random_settings(rng: random.Random) -> dict[str, Any]:
    is_fair = rng.random() < 0.2
    return {
        "fair": is_fair,
        "max_deliveries": rng.choice((0, 1, 1, 2, 3)),
        "dead_on_receive": rng.random() < 0.3,
        "redelivery": "original" if is_fair else rng.choice(("tail", "tail", "original")),
        "capacity": rng.choice((None, None, 5, 25)),
        "deduplicate_by_group": rng.random() < 0.5,
    }


SLICE = 2  # so that what is due needs several slices


class Parked:
    """A receive that is parked; if its task is `gone`, nobody is left to be woken."""

    closed = False  # it is its own mailbox, too

    def __init__(self, count: int, timeout: int, *, gone: bool) -> None:
        self.owner, self.count, self.timeout, self.gone = self, count, timeout, gone
        self.leases: list[Lease] | None = None
        self.served: list[Lease] = []
        self.seen: list[tuple[int, ...]] = []

    def wake(self) -> bool:
        self.served = self.leases or []
        self.seen = _seen(self.served)
        return not self.gone


class NoPulse:
    """A world calls `beat` itself."""

    def arm(self, at: int) -> None: ...
    def rearm(self, at: int) -> None: ...


class RecordedSession(QueueSession):
    """Tells its world what happens."""

    store: RecordedStore

    def _write(self, events: Sequence[e.Event], *, lazy: bool = False) -> Written | None:
        self.store.world.record(self.queue, events)
        return super()._write(events, lazy=lazy)


class RecordedStore(Store):
    """A store in the time of a world."""

    def __init__(self, world: World) -> None:
        clock = SystemClock()
        clock.now = lambda: world.now
        super().__init__(clock)
        self.world = world
        self.pulse = NoPulse()  # type: ignore[assignment]

    def _new_session(self, queue: Queue) -> QueueSession:
        return RecordedSession(self, queue)


class World:
    """Three queues of a store, three of the model, one clock."""

    def __init__(self, seed: int) -> None:
        rng = random.Random(seed)
        self.now = START + rng.randrange(2)
        self.steps = 0
        self.seen: Counter[str] = Counter()
        self.journal: list[bytes] | None = None
        self.happened = 0
        self._touched: set[int] = set()
        self.haste = rng.choice((0.1, 0.4, 1.0))  # how often the clock makes a large jump
        self.plain = rng.random() < 0.25  # no groups, no priorities
        self.patient = not self.plain and rng.random() < 0.25  # many leases of many timeouts
        self.waits = rng.random() < 0.4  # receivers are parked; then a slice is all there is
        queue_steps.SLICE = 10_000 if self.waits else SLICE
        fair.NOISY_HELD_MIN, fair.NOISY_SHARE = naive.NOISY_HELD_MIN, naive.NOISY_SHARE
        self.settings = [random_settings(rng) for _ in range(3)]
        if self.patient:
            self.haste = 0.04
            self.settings[MAIN] |= {"capacity": None}
        if self.plain:
            self.settings[MAIN] |= {"capacity": None, "redelivery": "tail", "fair": False}
            self.settings[MAIN] |= {"dead_on_receive": False, "max_deliveries": rng.choice((0, 2))}
        self.store = RecordedStore(self)
        self.sessions = [
            self.store.session(name, Settings(**each))
            for name, each in zip(NAMES, self.settings, strict=True)
        ]
        self.queues = [session.queue for session in self.sessions]
        self.models = fresh_models(self.settings)
        if rng.random() < 0.85:
            self._bury(MAIN)
        if rng.random() < 0.5:
            self._bury(OTHER)
        self.parked: list[list[Parked]] = [[], [], []]
        self.pairs: list[deque[tuple[Lease, naive.Lease]]] = [
            deque(maxlen=_PAIRS_KEPT_MAX) for _ in range(3)
        ]

    def _bury(self, source: int) -> None:
        deliveries = self.settings[source]["max_deliveries"]
        self.store.set_dead_letters(self.sessions[source], self.sessions[DEAD], deliveries)
        self.models[source].dead_letters = self.models[DEAD]

    # The steps

    def jump(self, jump: int) -> None:
        if jump >= 0:
            self.now += jump
            return
        if jump in (TO_DEADLINE, BEFORE_DEADLINE):
            moments = [model.next_deadline() for model in self.models]
        else:
            moments = [until for model in self.models for _, until in model.known.values()]
        target = min((at for at in moments if at is not None and at > self.now), default=self.now)
        if jump in (BEFORE_DEADLINE, BEFORE_FORGETTING):
            target -= 1
        self.now = max(self.now, target)

    def send(self, at: int, specs: Sequence[MessageSpec], delay: int) -> None:
        """Those that differ in nothing are one batch."""
        session, model = self._begin(at, "send")
        while True:
            spec = specs[0] if specs else (0, None, None)
            alike = next((i for i, each in enumerate(specs) if each != spec), len(specs))
            self._send(session, model, spec, alike, delay)
            self._serve(at)
            specs = specs[alike:]
            if not specs:
                break
        self._end(at)

    def _send(
        self,
        session: QueueSession,
        model: naive.NaiveQueue,
        spec: MessageSpec,
        count: int,
        delay: int,
    ) -> None:
        priority, group, deduplication = spec
        key = max(self.now >> 1, self.store.last_key + 1)
        bodies = [b"%d" % (key + i) for i in range(count)]
        messages = [
            naive.Message(key + i, body, priority, group, deduplication)
            for i, body in enumerate(bodies)
        ]
        plain = group is None and deduplication is None
        extra = None if plain else lambda: Extra(group, deduplication)

        def send() -> Sequence[int]:
            return session.send(bodies, priority, delay, extra=extra)

        try:
            expected = model.send(messages, delay, self.now)
        except naive.Full:
            error = self._raises(MailboxFullError, session.queue, send)
            assert f"{session.queue.size:,} of {model.capacity:,} messages" in error
        else:
            got = list(send())
            assert got == expected, f"keys of a send: {got}, expected {expected}"

    def receive(self, at: int, count: int, timeout: int) -> None:
        session, model = self._begin(at, "receive")
        expected = model.receive(count, timeout, self.now)
        leases = session.receive(Parked(1, 1, gone=False), count, timeout, 0)
        self._received(at, leases, _seen(leases), expected)
        self._end(at)

    def _received(
        self,
        at: int,
        leases: list[Lease],
        got: list[tuple[int, ...]],
        expected: list[naive.Lease],
    ) -> None:
        wanted = [(x.message.key, x.number, x.leased_at, x.deadline) for x in expected]
        assert got == wanted, f"received {got}, expected {wanted}"
        self.pairs[at].extend(zip(leases, expected, strict=True))

    def park(self, at: int, count: int, timeout: int, *, gone: bool) -> None:
        """A receive that waits until there is something for it, which it has for some time."""
        session, _ = self._begin(at, "park")
        waiter = Parked(count, timeout, gone=gone)
        self.parked[at].append(waiter)
        session.enter(waiter)
        self._end(at)

    def leave(self, at: int, pick: int, *, interrupted: bool) -> None:
        """The time of one that waits is up, or it is interrupted: there was nothing for it."""
        session, _ = self._begin(at, "leave")
        if self.parked[at]:
            waiter = self.parked[at].pop(pick % len(self.parked[at]))
            if interrupted:
                session.give_up(waiter)
            else:
                assert session.leave(waiter) == []
        self._end(at)

    def pause(self, at: int, *, paused: bool) -> None:
        """Deliver nothing from now on, or let those who wait have what came meanwhile."""
        session, model = self._begin(at, "pause" if paused else "resume")
        model.paused = paused
        self.store.pause(session, paused=paused)
        self._end(at)

    def beat(self) -> None:
        """The pulse: it settles the queues that somebody watches."""
        self.steps += 1
        self.seen["beat"] += 1
        alarms = sorted(self.store._alarms, key=lambda alarm: alarm[:2])
        due = [
            self.sessions.index(each) for at, _, each in alarms if at == each.alarm_at <= self.now
        ]
        due = [at for at in due if self.queues[at].wake_at <= self.now]
        self.store.beat()
        for at in due:
            self.models[at].settle(self.now)
            self._serve(at)
        self._end(*range(3))

    def end(self, at: int, verb: str, picks: Sequence[int], option: int) -> None:
        """Acknowledge, nack, release, extend or reject what some receipts name."""
        pairs = self.pairs[at]
        chosen = [pairs[pick % len(pairs)] for pick in picks] if pairs else []
        for ours, theirs in chosen:  # also of what is due, and has not happened yet
            assert decide.live([ours], self.now) == [theirs.is_live(self.now)], "a lease's end"
        session, model = self._begin(at, verb)
        expected = self._model_end(model, verb, [pair[1] for pair in chosen], option)
        answers = _end_leases(session, verb, [pair[0] for pair in chosen], option)
        assert answers == expected, f"{verb}: {answers}, expected {expected}"
        self._end(at)

    def _model_end(
        self, model: naive.NaiveQueue, verb: str, leases: list[naive.Lease], option: int
    ) -> list[bool]:
        if verb == "acknowledge":
            return model.acknowledge(leases, self.now)
        if verb == "nack":
            return model.nack(leases, DELAYS[option % len(DELAYS)], self.now)
        if verb == "release":
            return model.release(leases, bool(option % 2), self.now)
        if verb == "extend":
            return model.extend(leases, TIMEOUTS[option % len(TIMEOUTS)], self.now)
        return model.reject(leases, f"reason {option}", self.now)

    def purge(self, at: int) -> None:
        session, model = self._begin(at, "purge")
        assert session.purge() == model.purge()
        self._end(at)

    def remove(self, at: int, picks: Sequence[int]) -> None:
        session, model = self._begin(at, "remove")
        keys = self._keys(at, picks)
        assert session.remove(keys) == model.remove(keys)
        self._end(at)

    def reschedule(self, at: int, pick: int, delay: int) -> None:
        session, model = self._begin(at, "reschedule")
        timed = sorted(m.key for m in model.messages if m.state == naive.SCHEDULED)
        (key,) = {timed[pick % len(timed)]} if timed and pick % 2 else self._keys(at, [pick])
        due = self.now + delay
        events = session.step(lambda queue, _: decide.reschedule(queue, key, due))
        assert bool(events) == model.reschedule(key, due)
        self._end(at)

    def change_visibility(self, at: int, pick: int, timeout: int) -> None:
        session, model = self._begin(at, "change_visibility")
        (key,) = self._keys(at, [pick])
        events = session.step(lambda queue, now: decide.change_visibility(queue, key, timeout, now))
        assert bool(events) == model.change_visibility(key, timeout, self.now)
        self._end(at)

    def force(self, at: int) -> None:
        session, model = self._begin(at, "force")
        assert len(session.step(decide.force)) == model.force(self.now)
        self._end(at)

    def redrive(self, at: int, to: int, picks: Sequence[int]) -> None:
        session, model = self._begin(at, "redrive")
        keys, target = self._keys(at, picks), self.sessions[to]
        if to == at:
            self._raises(
                InvalidParameterError, session.queue, lambda: session.redrive(keys, target)
            )
            return
        behind = max(self.now, (self.store.last_key + 1) << 1)
        expected = model.redrive(keys, self.models[to], behind)
        assert session.redrive(keys, target) == expected
        self._end(at, to)

    def tick(self, at: int) -> None:
        """What is due happens, with nothing asked."""
        self._begin(at, "tick")
        queue = self.queues[at]
        assert self.now < queue.wake_at <= (next_deadline(queue) or NEVER)
        self._end(at)

    # How a step goes

    def _begin(self, at: int, verb: str) -> tuple[QueueSession, naive.NaiveQueue]:
        self.steps += 1
        self.seen[verb] += 1
        for other in ((MAIN, OTHER) if at == DEAD else ()) + (at,):
            self._settle(other)
        return self.sessions[at], self.models[at]

    def _settle(self, at: int) -> None:
        session, queue = self.sessions[at], self.queues[at]
        if at != DEAD or self.now >= queue.wake_at:
            self._touched.add(at)
        while self.now >= queue.wake_at:
            before = self.happened
            with self.store.lock:
                session.settle(self.now)
            assert self.happened > before or self.now < queue.wake_at, "what is due never happens"
        self.models[at].settle(self.now)
        self._serve(at)

    def _serve(self, at: int) -> None:
        """Let the model serve those who wait, as the store has done; and then those it killed."""
        model = self.models[at]
        while self.parked[at] and model.line() and not model.paused:
            waiter = self.parked[at][0]
            expected = model.receive(waiter.count, waiter.timeout, self.now)
            if model.dead_letters is not None:
                self._serve(DEAD)
            if not expected:
                continue
            del self.parked[at][0]
            self.seen["served"] += 1
            self._received(at, waiter.served, waiter.seen, expected)
            if waiter.gone:
                assert waiter.leases == [], "what nobody sees goes back"
                model.release(expected[::-1], True, self.now)
        if model.dead_letters is not None and at != DEAD:
            self._serve(DEAD)

    def record(self, queue: Queue, events: Sequence[e.Event]) -> None:
        """What is about to happen to a queue."""
        self.happened += len(events)
        for event in events:
            self.seen[type(event).__name__] += 1
            if isinstance(event, e.Died | e.DiedInLine):
                self._touched.add(DEAD)
            if self.journal is not None:
                number = NAMES.index(queue.name)
                self.journal.extend(journal.encode(event, number))

    def _raises(self, kind: type[Exception], queue: Queue, what: Callable[[], Any]) -> str:
        before = snapshot(queue)
        try:
            what()
        except kind as error:
            assert snapshot(queue) == before, "a refused call changed the queue"
            self.seen[kind.__name__] += 1
            return str(error)
        raise AssertionError(f"expected {kind.__name__}")

    def _keys(self, at: int, picks: Sequence[int]) -> list[int]:
        known = sorted(message.key for message in self.models[at].messages)
        return [known[pick % len(known)] if known and pick >= 0 else 1 for pick in picks]

    def _end(self, *touched: int) -> None:
        for at in touched:
            self._serve(at)
        for at in range(3) if self.steps % 16 == 0 else sorted(self._touched.union(touched)):
            compare(self.queues[at], self.models[at])
            for ours, theirs in self.pairs[at]:
                assert ours.deadline == (0 if theirs.over else theirs.deadline), "a lease's end"
            check_inside(self.queues[at], self.models[at])
            session = self.sessions[at]
            assert list(session.waiters) == self.parked[at], "who waits"
            assert not session.waiters or session.alarm_at <= session.queue.wake_at, (
                "nobody will wake them"
            )
        self._touched.clear()
        if self.steps % 8 == 0:
            line = [message.key for message in self.models[touched[0]].line()]
            assert [record.key for record in in_order(self.queues[touched[0]])] == line


def fresh_queues(settings: list[dict[str, Any]]) -> list[Queue]:
    return [Queue(name, Settings(**each)) for name, each in zip(NAMES, settings, strict=True)]


def fresh_models(settings: list[dict[str, Any]]) -> list[naive.NaiveQueue]:
    return [naive.NaiveQueue(name, **each) for name, each in zip(NAMES, settings, strict=True)]


def _seen(leases: list[Lease]) -> list[tuple[int, ...]]:
    assert all(x.extra is x.record.extra for x in leases), "a lease keeps what it saw"
    return [(x.record.key, x.number, x.leased_at, x.deadline) for x in leases]


def _end_leases(session: QueueSession, verb: str, leases: list[Lease], option: int) -> list[bool]:
    if verb == "acknowledge":
        return session.acknowledge(leases)
    if verb == "nack":
        return session.nack(leases, DELAYS[option % len(DELAYS)])
    if verb == "release":
        return session.release(leases, to_front=bool(option % 2))
    if verb == "extend":
        return session.extend(leases, TIMEOUTS[option % len(TIMEOUTS)])
    return session.reject(leases, f"reason {option}")
