"""Copies the state of a store at one point in time while the store keeps running.

A queue is copied when its turn comes or just before it changes, whichever is first. Only pointers
are copied; a message that changes later is saved first (copy on write). So the copy can be
encoded later, in small pieces, by a thread that never holds the store's lock or the interpreter
for long.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeVar

from pillarbox.core import events as e
from pillarbox.core.leases import UNUSUAL
from pillarbox.core.queue import Extra, Group, Record
from pillarbox.mailbox.snapshot import QueueState, Rows, StoreState, encoded_queue

if TYPE_CHECKING:
    from pillarbox.mailbox.durable_store import DurableStore
    from pillarbox.mailbox.queue_steps import QueueSteps

T = TypeVar("T")
Saved = dict[int, tuple[int, Extra | None]]  # by key: delivery count and extra before the change

_PIECE = 256  # messages processed between two pauses;
_QUEUE_WORTH = 64  # a queue counts as this many messages
_CHANGES_RECORDS = (e.CameDue, e.Died, e.DiedInLine, e.Redriven, e.Released, e.Returned)

_deadline_of = attrgetter("deadline")
_timeout_of = attrgetter("timeout")


Pause = Callable[[], None]


def no_pause() -> None:
    """Do not pause: a caller is waiting for the result."""


def pieces(items: Sequence[T], pause: Pause) -> Iterator[Sequence[T]]:
    """Yield a long list in short pieces, pausing between them."""
    for start in range(0, len(items), _PIECE):
        if start:
            pause()
        yield items[start : start + _PIECE]


def each(items: Sequence[T], pause: Pause) -> Iterator[T]:
    """Yield the items of a long list one by one, pausing after each piece."""
    return chain.from_iterable(pieces(items, pause))


class Capture:
    """The state of a store at the time this was created, with the store's lock held.

    Until it is encoded, every change to a queue calls `before_changes` first, with the lock held.
    """

    def __init__(self, store: DurableStore, pause: Pause) -> None:
        self._store, self._pause = store, pause
        self._sessions: list[QueueSteps] = list(store.sessions.values())
        self._left = set(self._sessions)
        self._queues: dict[QueueSteps, CapturedQueue] = {}
        self._saved: Saved = {}
        self.index = store.log.next_index
        self._identity = store.prefix, store._secret, store.last_key, store.clock.now()
        self._last_key, self._last_number = store.last_key, store.last_number

    def before_changes(self, sessions: Iterable[QueueSteps], events: Sequence[e.Event]) -> None:
        """Copy these queues, and save the messages that these events are about to change."""
        for session in sessions:
            self.take(session)
        for event in events:
            if isinstance(event, _CHANGES_RECORDS):
                for record in e.records_of(event):
                    if record.key <= self._last_key:  # else it was sent after the capture
                        self._saved.setdefault(record.key, (record.deliveries, record.extra))

    def take(self, session: QueueSteps) -> int:
        """Copy a queue unless it is already copied; return the amount of work done."""
        if session not in self._left:
            return 0
        self._queues[session] = CapturedQueue(session, self._pause)
        self._left.discard(session)  # last: a signal handler may raise in between
        return _QUEUE_WORTH + session.queue.size

    def complete(self) -> None:
        """Copy every queue that is not copied yet."""
        left = self._sessions[::-1]
        while left:
            with self._store.lock:
                work = 0
                while left and work < _PIECE:
                    work += self.take(left.pop())
            self._pause()

    def records(self) -> Iterator[Sequence[Record]]:
        """Yield all messages, in short pieces."""
        for queue in self._queues.values():
            yield from queue.records()

    def state(self, oldest: int) -> StoreState:
        """Return the contents of a snapshot; `oldest` is the log index of the oldest body."""
        queues = []
        for number, session in enumerate(self._sessions, 1):
            queues.append(encoded_queue(self._queues[session].state(self._saved)))
            if number % (_PIECE // _QUEUE_WORTH) == 0:
                self._pause()
        log_id = self._store.log.log_id.hex()
        return StoreState(self.index, *self._identity, queues, self._last_number, log_id, oldest)


class CapturedQueue:
    """The contents of one queue when it was copied."""

    def __init__(self, session: QueueSteps, pause: Pause) -> None:
        queue, self._pause = session.queue, pause
        self._number, self._notes = session.number, session.notes
        self._name, self._settings = queue.name, queue.settings
        self._dead_letters = queue.dead_letters.name if queue.dead_letters is not None else None
        self._lanes = {p: list(lane) for p, lane in queue.lanes.items() if lane}
        self._returned = {p: list(line) for p, line in queue.returned.items()}
        self._groups = {
            name: (group, list(group.waiting), group.held) for name, group in queue.groups.items()
        }
        self._schedule = queue.schedule.entries()
        in_line, unusual = queue.leases.entries()
        self._leases, self._in_line = in_line + unusual, len(in_line)
        self._deadlines = list(map(_deadline_of, self._leases))
        self._timeouts = list(map(_timeout_of, self._leases))
        self._duplicates = list(queue.duplicates.items())

    def records(self) -> Iterator[Sequence[Record]]:
        """Yield the messages of the queue, in short pieces."""
        waiting = [self._plain(lane) for lane in self._lanes.values()]
        waiting += [*self._returned.values(), *(group[1] for group in self._groups.values())]
        for line in waiting:
            yield from pieces(line, self._pause)
        for entries in pieces(self._schedule, self._pause):
            yield [record for _, _, record in entries]
        for some in pieces(self._living(), self._pause):
            yield [self._leases[at].record for at in some]

    def _plain(self, lane: list[Any]) -> list[Record]:
        if not self._groups:
            return lane
        return [item for item in each(lane, self._pause) if item.__class__ is not Group]

    def _living(self) -> list[int]:
        """Return the positions of the live leases, each lease once."""
        found = [
            at
            for at in each(range(self._in_line), self._pause)
            if self._timeouts[at] != UNUSUAL and self._deadlines[at]
        ]
        return [*found, *range(self._in_line, len(self._leases))]

    def state(self, saved: Saved) -> QueueState:
        """Return the queue's part of a snapshot."""
        timed = [(str(due), x) for due, _, x in each(self._schedule, self._pause)]
        living = self._living()
        held = [
            [x.number, x.leased_at, self._deadlines[at], self._timeouts[at], x.extra]
            for at, x in ((at, self._leases[at]) for at in each(living, self._pause))
        ]
        return QueueState(
            self._number,
            self._name,
            self._settings,
            self._dead_letters,
            {
                p: (_rows(self._plain(x), saved, self._pause), self._places(x))
                for p, x in self._lanes.items()
            },
            {p: _rows(line, saved, self._pause) for p, line in self._returned.items()},
            {
                name: (_rows(x, saved, self._pause), held)
                for name, (_, x, held) in self._groups.items()
            },
            (_rows([x for _, x in timed], saved, self._pause), [due for due, _ in timed]),
            (_rows([self._leases[at].record for at in living], saved, self._pause), held),
            [(*name, *known) for name, known in self._duplicates],
            self._notes,
        )

    def _places(self, lane: list[Any]) -> list[tuple[int, str]]:
        """Return the positions of groups in a lane."""
        names = {id(group): name for name, (group, *_) in self._groups.items()}
        return [(at, names[id(x)]) for at, x in enumerate(lane) if id(x) in names] if names else []


def _rows(records: Sequence[Record], saved: Saved, pause: Pause) -> Rows:
    """Return the columns of these messages as of the copy of their queue."""
    keys, bodies, priorities, deliveries = array("Q"), array("Q"), bytearray(), array("I")
    attributes: dict[int, dict[str, str]] = {}
    extras: dict[int, Extra] = {}
    for some in pieces(records, pause):
        first = len(keys)
        counts = [record.deliveries for record in some]
        specials = [record.extra for record in some]
        if saved:  # read last: a message is saved before it changes
            for at, record in enumerate(some):
                if record.key in saved:
                    counts[at], specials[at] = saved[record.key]
        keys.extend([record.key for record in some])
        bodies.extend([record.body for record in some])
        priorities += bytes([record.priority for record in some])
        deliveries.extend(counts)
        for at, record in enumerate(some, first):
            if record.attributes is not None:
                attributes[at] = record.attributes
        for at, extra in enumerate(specials, first):
            if extra is not None:
                extras[at] = extra
    columns = keys.tobytes(), bodies.tobytes(), bytes(priorities), deliveries.tobytes()
    return Rows(*columns, attributes, extras)
