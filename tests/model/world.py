"""The state machine and the naive model side by side: each step is asked of both.

A world has a main queue, another one and the dead-letter queue of both. A step is a jump of
the clock and one call. Afterwards everything that can be seen of the queues must be equal,
and what must always hold inside a queue is checked. A difference is an AssertionError.
"""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Callable, Sequence
from itertools import compress
from typing import Any

from pillarbox.core import apply, decide, journal
from pillarbox.core import commands as c
from pillarbox.core import events as e
from pillarbox.core.errors import InvalidParameterError, MailboxFullError
from pillarbox.core.queue import (
    NEVER,
    Extra,
    Lease,
    Queue,
    Record,
    Settings,
    in_order,
    next_deadline,
)
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

MAIN, OTHER, DEAD = 0, 1, 2
_PAIRS_KEPT_MAX = 80  # receipts that a world remembers, live and stale

MessageSpec = tuple[int, "str | None", "str | None"]  # priority, group, deduplication id


def random_settings(rng: random.Random) -> dict[str, Any]:
    return {
        "max_deliveries": rng.choice((0, 1, 1, 2, 3)),
        "dead_on_receive": rng.random() < 0.3,
        "redelivery": rng.choice(("tail", "tail", "original")),
        "capacity": rng.choice((None, None, 5, 25)),
        "deduplicate_by_group": rng.random() < 0.5,
    }


TICK_MOST = 2  # so that what is due needs several slices


class World:
    """Three queues of the core, three of the model, one clock."""

    def __init__(self, seed: int, *, snapshot_every: int = 16) -> None:
        rng = random.Random(seed)
        self.now = START + rng.randrange(2)
        self.last_key = 0
        self.steps = 0
        self.seen: Counter[str] = Counter()
        self.journal: list[bytes] | None = None
        self._touched: set[int] = set()
        self._snapshot_every = snapshot_every
        self.haste = rng.choice((0.1, 0.4, 1.0))  # how often the clock makes a large jump
        self.plain = rng.random() < 0.25  # no groups, no priorities
        self.patient = not self.plain and rng.random() < 0.25  # many leases of many timeouts
        self.settings = [random_settings(rng) for _ in range(3)]
        if self.patient:
            self.haste = 0.04
            self.settings[MAIN] |= {"capacity": None}
        if self.plain:
            self.settings[MAIN] |= {"capacity": None, "redelivery": "tail"}
            self.settings[MAIN] |= {"dead_on_receive": False, "max_deliveries": rng.choice((0, 2))}
        self.queues, self.models = fresh_queues(self.settings), fresh_models(self.settings)
        if rng.random() < 0.85:
            self._bury(MAIN)
        if rng.random() < 0.5:
            self._bury(OTHER)
        self.pairs: list[deque[tuple[Lease, naive.Lease]]] = [
            deque(maxlen=_PAIRS_KEPT_MAX) for _ in range(3)
        ]

    def _bury(self, source: int) -> None:
        self.queues[source].send_dead_letters_to(self.queues[DEAD])
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

    def send(self, at: int, specs: Sequence[MessageSpec], delay: int, *, quick: bool) -> None:
        queue, model = self._begin(at, "send", quick=quick)
        key = max(self.now >> 1, self.last_key + 1)
        records, messages = [], []
        for i, (priority, group, deduplication) in enumerate(specs):
            extra = None if group is None and deduplication is None else Extra(group, deduplication)
            body = b"%d" % (key + i)
            records.append(Record(key + i, body, priority, 0, None, extra))
            messages.append(naive.Message(key + i, body, priority, group, deduplication))
        expected: list[int] | None = None
        try:
            expected = model.send(messages, delay, self.now)
        except naive.Full:
            with_error = self._raises(
                MailboxFullError, queue, lambda: decide.send(queue, records, self.now)
            )
            assert f"{queue.size:,} of {model.capacity:,} messages" in with_error
        else:
            self.last_key = key + len(records)
            if quick:
                self._hot_send(queue, records, delay)
            else:
                self._decide(queue, c.Send(records, delay))
            got = [decide.original(queue, record, self.now) for record in records]
            assert got == expected, f"keys of a send: {got}, expected {expected}"
        self._end(at)

    def receive(self, at: int, count: int, timeout: int, *, quick: bool) -> None:
        queue, model = self._begin(at, "receive", quick=quick)
        expected = model.receive(count, timeout, self.now)
        if quick and not queue.settings.dead_on_receive:
            leases = self._hot_receive(queue, count, timeout)
        else:
            events = self._decide(queue, c.Receive(count, timeout))
            leases = [lease for x in events if isinstance(x, e.Leased) for lease in x.leases]
        got = [(x.record.key, x.number, x.leased_at, x.deadline) for x in leases]
        wanted = [(x.message.key, x.number, x.leased_at, x.deadline) for x in expected]
        assert got == wanted, f"received {got}, expected {wanted}"
        assert all(x.extra is x.record.extra for x in leases), "a lease keeps what it saw"
        self.pairs[at].extend(zip(leases, expected, strict=True))
        self._end(at)

    def _hot_send(self, queue: Queue, records: list[Record], delay: int) -> None:
        """As a mailbox does it: plain messages of one priority have a way of their own."""
        fresh = self._pure(queue, lambda: decide.send(queue, records, self.now))
        self._record(queue, [e.Scheduled(fresh, self.now + delay) if delay else e.Sent(fresh)])
        if delay:
            apply.scheduled(queue, fresh, self.now + delay)
        elif len({(record.extra, record.priority) for record in fresh} | {(None, 0)}) == 1:
            self.seen["lined-up"] += 1
            apply.lined_up(queue, fresh, 0)
        else:
            apply.sent(queue, fresh)

    def _hot_receive(self, queue: Queue, count: int, timeout: int) -> list[Lease]:
        if not queue.mask:
            return []
        leases = self._pure(queue, lambda: decide.receive(queue, count, timeout, self.now))
        self._record(queue, [e.Leased(leases)])
        apply.leased(queue, leases)
        return leases  # type: ignore[no-any-return]

    def _hot_acknowledge(self, queue: Queue, leases: list[Lease]) -> None:
        if not leases:
            return
        self._record(queue, [e.Acknowledged(leases)])
        apply.acknowledged(queue, leases)

    def end(self, at: int, verb: str, picks: Sequence[int], option: int, *, quick: bool) -> None:
        """Acknowledge, nack, release, extend or reject what some receipts name."""
        pairs = self.pairs[at]
        chosen = [pairs[pick % len(pairs)] for pick in picks] if pairs else []
        lazy = quick and verb == "acknowledge"  # mailboxes acknowledge before what is due
        queue, model = self._begin(at, verb, quick=quick, settle=not lazy)
        ours, theirs = [pair[0] for pair in chosen], [pair[1] for pair in chosen]
        expected = self._model_end(model, verb, theirs, option)
        answers = decide.live(ours, self.now)
        assert answers == expected, f"{verb}: {answers}, expected {expected}"
        if not quick:
            self._decide(queue, _command(verb, ours, option))
        elif verb == "acknowledge":
            self._hot_acknowledge(queue, list(compress(ours, answers)))
        else:
            living = list(compress(ours, answers))
            self._apply(
                queue, self._pure(queue, lambda: self._hot_end(queue, verb, living, option))
            )
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

    def _hot_end(self, queue: Queue, verb: str, leases: list[Lease], option: int) -> list[e.Event]:
        if verb == "nack":
            return decide.nack(queue, iter(leases), DELAYS[option % len(DELAYS)], self.now)
        if verb == "release":
            return [e.Released(lease, bool(option % 2)) for lease in leases]
        if verb == "extend":
            timeout = TIMEOUTS[option % len(TIMEOUTS)]
            return [e.Extended(lease, self.now + timeout, timeout) for lease in leases]
        return decide.reject(queue, iter(leases), f"reason {option}", self.now)

    def purge(self, at: int, *, quick: bool) -> None:
        queue, model = self._begin(at, "purge", quick=quick)
        size = queue.size
        assert size == model.purge()
        if quick:
            self._record(queue, [e.Purged()])
            apply.purged(queue)
        else:
            self._decide(queue, c.Purge())
        self._end(at)

    def remove(self, at: int, picks: Sequence[int], *, quick: bool) -> None:
        queue, model = self._begin(at, "remove", quick=quick)
        keys = self._keys(at, picks)
        expected = model.remove(keys)
        if quick:
            event = self._pure(queue, lambda: decide.remove(queue, keys))
            self._apply(queue, [event])
        else:
            (event,) = self._decide(queue, c.Remove(keys))
        assert len(event.keys) == expected
        self._end(at)

    def reschedule(self, at: int, pick: int, delay: int, *, quick: bool) -> None:
        queue, model = self._begin(at, "reschedule", quick=quick)
        timed = sorted(m.key for m in model.messages if m.state == naive.SCHEDULED)
        (key,) = {timed[pick % len(timed)]} if timed and pick % 2 else self._keys(at, [pick])
        due = self.now + delay
        if quick:
            events = self._pure(queue, lambda: decide.reschedule(queue, key, due))
            self._apply(queue, events)
        else:
            events = self._decide(queue, c.Reschedule(key, due))
        assert bool(events) == model.reschedule(key, due)
        self._end(at)

    def force(self, at: int, *, quick: bool) -> None:
        queue, model = self._begin(at, "force", quick=quick)
        if quick:
            events = self._pure(queue, lambda: decide.force(queue, self.now))
            self._apply(queue, events)
        else:
            events = self._decide(queue, c.Force())
        assert len(events) == model.force(self.now)
        self._end(at)

    def redrive(self, at: int, to: int, picks: Sequence[int], *, quick: bool) -> None:
        queue, model = self._begin(at, "redrive", quick=quick)
        keys, target = self._keys(at, picks), self.queues[to]
        if to == at:
            self._raises(
                InvalidParameterError,
                queue,
                lambda: decide.decide(queue, c.Redrive(keys, target), self.now),
            )
            return
        expected = model.redrive(keys, self.models[to], self.now)
        if quick:
            event = self._pure(queue, lambda: decide.redrive(queue, keys, target, self.now))
            self._apply(queue, [event])
        else:
            (event,) = self._decide(queue, c.Redrive(keys, target))
        assert len(event.records) == expected
        self._end(at, to)

    def tick(self, at: int) -> None:
        """The pulse: what is due happens, with nothing asked."""
        self.steps += 1
        self.seen["tick"] += 1
        queue = self.queues[at]
        self.models[at].settle(self.now)
        while due := self._pure(queue, lambda: decide.tick(queue, self.now, TICK_MOST)):
            self._apply(queue, due)
        apply.settle(queue, self.now)
        assert queue.wake_at == (next_deadline(queue) or NEVER)
        assert queue.wake_at > self.now
        self._end(at)

    # How a step goes

    def _begin(
        self, at: int, verb: str, *, quick: bool, settle: bool = True
    ) -> tuple[Queue, naive.NaiveQueue]:
        self.steps += 1
        self.seen[verb] += 1
        if settle:
            for other in ((MAIN, OTHER) if at == DEAD else ()) + (at,):
                self._settle(other, quick=quick)
        return self.queues[at], self.models[at]

    def _settle(self, at: int, *, quick: bool) -> None:
        queue = self.queues[at]
        if at != DEAD or self.now >= queue.wake_at:
            self._touched.add(at)
        self.models[at].settle(self.now)
        if self.journal is not None:
            self._apply(queue, decide.tick(queue, self.now))
        if not quick or self.now >= queue.wake_at:  # mailboxes trust `wake_at`
            for event in apply.settle(queue, self.now):
                self._see(event)

    def _decide(self, queue: Queue, command: c.Command) -> list[Any]:
        events = self._pure(queue, lambda: decide.decide(queue, command, self.now))
        self._apply(queue, events)
        return events

    def _apply(self, queue: Queue, events: Sequence[Any]) -> None:
        for event in events:
            self._record(queue, [event])
            apply.apply(queue, event)

    def _record(self, queue: Queue, events: Sequence[e.Event]) -> None:
        for event in events:
            self._see(event)
            if self.journal is not None:
                self.journal.extend(journal.encode(event, self.queues.index(queue)))

    def _see(self, event: e.Event) -> None:
        self.seen[type(event).__name__] += 1
        if isinstance(event, e.Died | e.DiedInLine):
            self._touched.add(DEAD)

    def _pure(self, queue: Queue, what: Callable[[], Any]) -> Any:
        """The answer of a decision, which must have changed nothing."""
        if not self._snapshot_every or self.steps % self._snapshot_every:
            return what()
        watched = [queue] if queue.dead_letters is None else [queue, queue.dead_letters]
        before = [snapshot(each) for each in watched]
        answer = what()
        assert [snapshot(each) for each in watched] == before, "decide changed the queue"
        return answer

    def _raises(self, kind: type[Exception], queue: Queue, what: Callable[[], Any]) -> str:
        before = snapshot(queue)
        try:
            what()
        except kind as error:
            assert snapshot(queue) == before, "a refused command changed the queue"
            self.seen[kind.__name__] += 1
            return str(error)
        raise AssertionError(f"expected {kind.__name__}")

    def _keys(self, at: int, picks: Sequence[int]) -> frozenset[int]:
        known = sorted(message.key for message in self.models[at].messages)
        return frozenset(known[pick % len(known)] if known and pick >= 0 else 1 for pick in picks)

    def _end(self, *touched: int) -> None:
        for at in range(3) if self.steps % 16 == 0 else sorted(self._touched.union(touched)):
            compare(self.queues[at], self.models[at])
            for ours, theirs in self.pairs[at]:
                assert ours.deadline == (0 if theirs.over else theirs.deadline), "a lease's end"
            check_inside(self.queues[at], self.models[at])
        self._touched.clear()
        if self.steps % 8 == 0:
            line = [message.key for message in self.models[touched[0]].line()]
            assert [record.key for record in in_order(self.queues[touched[0]])] == line


def fresh_queues(settings: list[dict[str, Any]]) -> list[Queue]:
    names = ("main", "other", "dead")
    return [Queue(name, Settings(**each)) for name, each in zip(names, settings, strict=True)]


def fresh_models(settings: list[dict[str, Any]]) -> list[naive.NaiveQueue]:
    names = ("main", "other", "dead")
    return [naive.NaiveQueue(name, **each) for name, each in zip(names, settings, strict=True)]


def _command(verb: str, leases: list[Lease], option: int) -> c.Command:
    if verb == "acknowledge":
        return c.Acknowledge(leases)
    if verb == "nack":
        return c.Nack(leases, DELAYS[option % len(DELAYS)])
    if verb == "release":
        return c.Release(leases, to_front=bool(option % 2))
    if verb == "extend":
        return c.Extend(leases, TIMEOUTS[option % len(TIMEOUTS)])
    return c.Reject(leases, f"reason {option}")
