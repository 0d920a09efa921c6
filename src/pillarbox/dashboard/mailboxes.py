"""The mailboxes that a dashboard shows, by name, with bodies as bytes.

`BrokerMailboxes` reads the store of a broker in the same process, `UrlMailboxes` opens URLs.
Their methods may block, so call them outside the event loop.
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
from pillarbox.mailbox.durable_store import DurableStore
from pillarbox.mailbox.local import LocalMailbox
from pillarbox.mailbox.location import index_of
from pillarbox.mailbox.message import Message
from pillarbox.mailbox.protocol import Mailbox, State
from pillarbox.mailbox.url import open_mailbox, without_password
from pillarbox.mutex import paced

if TYPE_CHECKING:
    from pillarbox.broker.server import Broker

HISTORY_ENTRIES_MAX = 20_000  # log entries searched for the history of a message
FIND_MAX = 1_000_000  # messages of a queue that can be browsed
HEAP_MAX = 5_000  # the same for scheduled and in-flight ones, which are heaps
_SHOWN_AT_ONCE = 16
STATES: tuple[State, ...] = get_args(State)


class Totals(NamedTuple):
    """Messages sent and deleted since the start, and waiting consumers."""

    sent: int
    done: int
    consumers: int


class Until(NamedTuple):
    """When a scheduled message is due, or the lease of one in flight ends, and who holds it."""

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
    """The mailboxes that a dashboard shows. By default, nothing is known but the mailboxes."""

    title: str
    address: str  # the URL of the queues without a name, for an example of a command
    history_file: str | None = None  # where the history of the queues survives a restart
    admin: QueueAdmin | None = None  # None if queues can't be created and changed here
    found_max = MESSAGES_MAX  # messages of each state among which one is looked for

    @cached_property
    def secret(self) -> bytes:
        """What forms and notices are signed with."""
        return secrets.token_bytes(32)

    @abstractmethod
    def names(self) -> Sequence[str]: ...

    @abstractmethod
    def open(self, name: str) -> Mailbox[bytes] | None:
        """The mailbox with this name; None if there is none."""

    def peek(self, name: str, state: State, count: int, skip: int) -> Sequence[Message[Any]]:
        """Messages in queue order from `skip` on; empty beyond what can be browsed quickly."""
        box, most = self.open(name), min(skip + count, MESSAGES_MAX)
        if box is None:
            raise MailboxError(f"queue {name!r} was deleted")
        return box.peek(most, state=state)[skip:] if most > skip else ()

    def find(self, name: str, message_id: str) -> Found | None:
        """A message by id; None if it is gone or too far back."""
        for state in STATES:
            for message in self.peek(name, state, self.found_max, 0):
                if message.id == message_id:
                    return Found(message, state)
        return None

    def times(self, name: str, state: State, count: int, skip: int) -> dict[str, Until]:
        """When messages are due, or their leases end, by message id; empty if that is unknown."""
        return {}

    def consumers(self) -> Sequence[Consumer] | None:
        """The clients that receive; None if the backend does not know them."""
        return None

    def held(self, names: Iterable[str]) -> Counter[Consumer]:
        """How many messages of these queues each consumer holds."""
        return Counter()

    def is_paused(self, name: str) -> bool:
        return False

    def totals(self, name: str) -> Totals | None:
        """None if the backend does not count."""
        return None

    def history(self, name: str, message_id: str) -> list[HistoryEntry]:
        """What happened to a message so far, if that is recorded."""
        return []

    def brokers(self) -> list[SeenBroker] | None:
        """The brokers that share the store; None if it is not shared."""
        return None

    def refresh(self) -> None:  # noqa: B027 - most keep nothing
        """Read anew what is known of the queues: something may have changed."""


class _BrowsableMailbox(LocalMailbox[bytes]):
    """A queue of the broker that can be read from any position."""

    def peek_at(self, state: State, count: int, skip: int) -> list[Message[Any]]:
        reach = FIND_MAX if state == "ready" else HEAP_MAX
        found = self._session.look(state, min(count, reach - skip), skip) if skip < reach else ()
        some = paced(found, _SHOWN_AT_ONCE)  # the event loop needs the interpreter, too
        return [self._verbs.seen(record, number, self) for record, number in some]

    def times_at(self, state: State, count: int, skip: int) -> dict[int, tuple[int, Any]]:
        """When they are due, or their leases end, and their holders, by key."""
        queue, end = self._session.queue, min(skip + count, HEAP_MAX)
        with self._session.store.lock:
            if state == "scheduled":
                due = islice(queue.schedule.soonest(), skip, end)
                return {key: (at, None) for at, key, _ in due}
            leases = islice(queue.leases.soonest(), skip, end)
            return {lease.record.key: (lease.deadline, lease.holder) for lease in leases}

    def held(self) -> Counter[Consumer]:
        """How many messages each consumer holds, of the first that are in flight."""
        with self._session.store.lock:
            leases = list(islice(self._session.queue.leases, HEAP_MAX))
        return Counter(lease.holder for lease in leases if lease.holder is not None)

    def found(self, key: int) -> Found | None:
        known = self._session.find(key)
        if known is None:
            return None
        record, number, state = known
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

    def open(self, name: str) -> Mailbox[bytes] | None:
        return self._mailbox(name) if name in self._store.sessions else None

    def peek(self, name: str, state: State, count: int, skip: int) -> Sequence[Message[Any]]:
        return self._mailbox(name).peek_at(state, count, skip)

    def find(self, name: str, message_id: str) -> Found | None:
        key = self._store.key_of(message_id)
        return None if key is None else self._mailbox(name).found(key)

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
        return sum((self._mailbox(name).held() for name in names), Counter())

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
        known = store.sessions[name].find(key)
        return [] if known is None else self._follow(store, key, index_of(known[0].body))

    def _mailbox(self, name: str) -> _BrowsableMailbox:
        return _BrowsableMailbox(self._store.sessions[name], bytes)

    def _follow(self, store: DurableStore, key: int, start: int) -> list[HistoryEntry]:
        """The log entries about a message: those that follow its body, and the newest."""
        start, end = max(start, store.log.first_index), store.log.end_index
        near = min(start + HISTORY_ENTRIES_MAX // 2, end)
        far = max(near, end - HISTORY_ENTRIES_MAX // 2)
        steps = _steps(store, key, start, near)
        if far > near:
            steps.append(HistoryEntry(None, "not searched", f"{far - near:,} log entries"))
        return steps + _steps(store, key, far, end)


def _steps(store: DurableStore, key: int, start: int, end: int) -> list[HistoryEntry]:
    found = (journal.decode(data) for each in store.log.frames(start, end) for data in each.records)
    return [_step(entry, key) for entry in found if entry.key == key]


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
    """Mailboxes by their URLs: Redis, SQS, a store on disk, another broker."""

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
