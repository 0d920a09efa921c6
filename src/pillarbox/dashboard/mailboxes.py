"""The mailboxes that a dashboard shows, by name, with bodies as bytes.

`BrokerMailboxes` reads the store of a broker in the same process; `UrlMailboxes` opens URLs. Their
methods may block, so call them outside the event loop.
"""

from __future__ import annotations

import secrets
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple, get_args

from pillarbox.broker.consumers import Consumer
from pillarbox.broker.heartbeat import SeenBroker
from pillarbox.core import journal
from pillarbox.core.errors import MailboxError
from pillarbox.core.limits import MESSAGES_MAX, SECOND_NS
from pillarbox.dashboard.admin import QueueAdmin
from pillarbox.mailbox.durable_session import index_of
from pillarbox.mailbox.durable_store import DurableStore
from pillarbox.mailbox.local import LocalMailbox
from pillarbox.mailbox.message import Message
from pillarbox.mailbox.protocol import Mailbox, State
from pillarbox.mailbox.url import open_mailbox, without_password
from pillarbox.mutex import paced

if TYPE_CHECKING:
    from pillarbox.broker.server import Broker

HISTORY_ENTRIES_MAX = 20_000  # log entries searched for the history of a message
FIND_MAX = 1_000_000  # messages of a queue that can be browsed
HEAP_MAX = 5_000  # the same for scheduled and in-flight messages, which are in heaps
_PACE = 16
STATES: tuple[State, ...] = get_args(State)


class Totals(NamedTuple):
    """Messages sent and deleted since the start, and waiting consumers."""

    sent: int
    done: int
    consumers: int


class Until(NamedTuple):
    """When a scheduled message is due, or when a lease ends, and the consumer that holds it."""

    at: datetime
    holder: Consumer | None = None


class HistoryEntry(NamedTuple):
    """One entry in the history of a message."""

    at: datetime | None
    kind: str
    detail: str


class Found(NamedTuple):
    """A message with its state."""

    message: Message[Any]
    state: State


class Mailboxes(ABC):
    """The mailboxes that a dashboard shows. The defaults are for a backend that only has those."""

    title: str
    address: str  # the URL of the queues without a name, for example commands
    history_file: str | None = None  # where the history of the queues is saved
    admin: QueueAdmin | None = None  # None if queues can't be created and changed here
    found_max = MESSAGES_MAX  # messages of each state to search for an id

    @cached_property
    def secret(self) -> bytes:
        """The key that signs forms and notices."""
        return secrets.token_bytes(32)

    @abstractmethod
    def names(self) -> Sequence[str]: ...

    @abstractmethod
    def open(self, name: str) -> Mailbox[bytes] | None:
        """Return the mailbox with this name; None if there is none."""

    def peek(self, name: str, state: State, count: int, skip: int) -> Sequence[Message[Any]]:
        """Return messages in queue order from `skip` on; empty beyond the browsing limit."""
        box, most = self.open(name), min(skip + count, MESSAGES_MAX)
        if box is None:
            raise _deleted(name)
        return box.peek(most, state=state)[skip:] if most > skip else ()

    def find(self, name: str, message_id: str) -> Found | None:
        """Find a message by id; return None if it is gone or too far back."""
        for state in STATES:
            for message in self.peek(name, state, self.found_max, 0):
                if message.id == message_id:
                    return Found(message, state)
        return None

    def times(self, name: str, state: State, count: int, skip: int) -> dict[str, Until]:
        """Return when messages are due or their leases end, by message id, if known."""
        return {}

    def consumers(self) -> Sequence[Consumer] | None:
        """Return the clients that receive; None if the backend does not track them."""
        return None

    def held(self, names: Iterable[str]) -> Counter[Consumer]:
        """Return how many messages of these queues each consumer holds."""
        return Counter()

    def is_paused(self, name: str) -> bool:
        return False

    def totals(self, name: str) -> Totals | None:
        """Return the totals of a queue; None if the backend does not count."""
        return None

    def history(self, name: str, message_id: str) -> list[HistoryEntry]:
        """Return the history of a message, if it is recorded."""
        return []

    def brokers(self) -> list[SeenBroker] | None:
        """Return the brokers that share the store; None if it is not shared."""
        return None

    def refresh(self) -> None:  # noqa: B027 - most cache nothing
        """Invalidate cached descriptions of the queues."""


def _deleted(name: str) -> MailboxError:
    return MailboxError(f"queue {name!r} was deleted")


class _BrowsableMailbox(LocalMailbox[bytes]):
    """A queue of the broker that can be read from any position."""

    def peek_at(self, state: State, count: int, skip: int) -> list[Message[Any]]:
        reach = FIND_MAX if state == "ready" else HEAP_MAX
        records = self._session.look(state, min(count, reach - skip), skip) if skip < reach else ()
        # Release the interpreter now and then: the event loop needs it, too.
        return [self._verbs.seen(record, number, self) for record, number in paced(records, _PACE)]

    def times_at(self, state: State, count: int, skip: int) -> dict[int, tuple[int, Any]]:
        """Return when messages are due or their leases end, and their holders, by key."""
        queue, end = self._session.queue, min(skip + count, HEAP_MAX)
        with self._session.store.lock:
            if state == "scheduled":
                due = islice(queue.schedule.soonest(), skip, end)
                return {key: (at, None) for at, key, _ in due}
            leases = islice(queue.leases.soonest(), skip, end)
            return {lease.record.key: (lease.deadline, lease.holder) for lease in leases}

    def held(self) -> Counter[Consumer]:
        """Return how many of the first messages in flight each consumer holds."""
        with self._session.store.lock:
            leases = list(islice(self._session.queue.leases, HEAP_MAX))
        return Counter(lease.holder for lease in leases if lease.holder is not None)

    def find_key(self, key: int) -> Found | None:
        found = self._session.find(key)
        if found is None:
            return None
        record, number, state = found
        return Found(self._verbs.seen(record, number, self), state)


class BrokerMailboxes(Mailboxes):
    """The queues of a broker in this process."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._store = broker.store
        self.admin = QueueAdmin(broker)
        data = broker.config.data
        self.title = data or "in memory"
        self.history_file = f"{data}/dashboard.history" if data else None

    @property
    def address(self) -> str:  # type: ignore[override]  # known once the broker listens
        return self._broker.url

    def names(self) -> Sequence[str]:
        return list(self._store.sessions)

    def open(self, name: str) -> _BrowsableMailbox | None:
        session = self._store.sessions.get(name)
        return None if session is None else _BrowsableMailbox(session, bytes)

    def peek(self, name: str, state: State, count: int, skip: int) -> Sequence[Message[Any]]:
        return self._mailbox(name).peek_at(state, count, skip)

    def find(self, name: str, message_id: str) -> Found | None:
        key = self._store.key_of(message_id)
        return None if key is None else self._mailbox(name).find_key(key)

    def times(self, name: str, state: State, count: int, skip: int) -> dict[str, Until]:
        if state == "ready" or skip >= HEAP_MAX:
            return {}
        found, epoch = self._mailbox(name).times_at(state, count, skip), self._store.clock.epoch_ns
        return {
            self._store.message_id(key): Until(
                datetime.fromtimestamp((at + epoch) / SECOND_NS, UTC), holder
            )
            for key, (at, holder) in found.items()
        }

    def consumers(self) -> Sequence[Consumer]:
        return [each for each in self._broker.consumers if each.queue in self._store.sessions]

    def held(self, names: Iterable[str]) -> Counter[Consumer]:
        boxes = filter(None, map(self.open, names))
        return sum((box.held() for box in boxes), Counter())

    def is_paused(self, name: str) -> bool:
        session = self._store.sessions.get(name)
        return session is not None and session.queue.settings.paused

    def totals(self, name: str) -> Totals:
        totals = self._broker.metrics.of(name)
        session = self._store.sessions.get(name)
        return Totals(
            totals.sent, totals.deleted, len(session.waiters) if session is not None else 0
        )

    def history(self, name: str, message_id: str) -> list[HistoryEntry]:
        store = self._store
        key = store.key_of(message_id)
        if not isinstance(store, DurableStore) or key is None:
            return []
        found = self._mailbox(name)._session.find(key)
        return [] if found is None else self._follow(store, key, index_of(found[0].body))

    def _mailbox(self, name: str) -> _BrowsableMailbox:
        box = self.open(name)
        if box is None:
            raise _deleted(name)
        return box

    def _follow(self, store: DurableStore, key: int, start: int) -> list[HistoryEntry]:
        """Return the log entries about a message, among those after its body and the newest."""
        start, end = max(start, store.log.first_index), store.log.end_index
        near = min(start + HISTORY_ENTRIES_MAX // 2, end)
        far = max(near, end - HISTORY_ENTRIES_MAX // 2)
        steps = _steps(store, key, start, near)
        if far > near:
            steps.append(HistoryEntry(None, "not searched", f"{far - near:,} log entries"))
        return steps + _steps(store, key, far, end)


def _steps(store: DurableStore, key: int, start: int, end: int) -> list[HistoryEntry]:
    records = (data for frame in store.log.frames(start, end) for data in frame.records)
    return [_step(entry, key) for entry in map(journal.decode, records) if entry.key == key]


def _step(entry: journal.Entry, key: int) -> HistoryEntry:
    at = entry.at
    if entry.kind in (journal.SENT, journal.SCHEDULED):
        at = key << 1
    time = datetime.fromtimestamp(at / SECOND_NS, UTC) if at else None
    detail = ""
    if entry.kind == journal.LEASED:
        timeout, number = entry.details
        detail = f"delivery {number}, for {timeout / SECOND_NS:g} s"
    elif entry.kind in (journal.RETURNED, journal.DIED):
        detail = str(entry.details[0])
    return HistoryEntry(time, journal.KINDS[entry.kind].replace("_", " "), detail)


class UrlMailboxes(Mailboxes):
    """Mailboxes by URL: on Redis, SQS, disk or another broker."""

    def __init__(self, urls: Sequence[str]) -> None:
        self.title = self.address = ", ".join(map(without_password, urls))
        self._boxes: dict[str, Mailbox[bytes]] = {}
        for url in urls:
            box = open_mailbox(url, bytes, create=False)
            self._boxes[box.name] = box
            if box.dead_letters is not None:
                self._boxes[box.dead_letters.name] = box.dead_letters

    def names(self) -> Sequence[str]:
        return sorted(self._boxes)

    def open(self, name: str) -> Mailbox[bytes] | None:
        return self._boxes.get(name)

    def close(self) -> None:
        for box in self._boxes.values():
            box.close()
