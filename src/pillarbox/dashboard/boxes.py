"""What a dashboard looks at: mailboxes by name, whatever is behind them.

Bodies are bytes here, shown as they are. `BrokerBoxes` stands in the broker's own process,
`UrlBoxes` asks over the network. Either may read from a disk or wait, so their calls belong on
another thread than an event loop's.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, get_args

from pillarbox.core import journal
from pillarbox.core.limits import MESSAGES_MAX, SECOND_NS
from pillarbox.mailbox.ledger import DurableStore
from pillarbox.mailbox.local import LocalMailbox
from pillarbox.mailbox.location import index_of
from pillarbox.mailbox.message import Message
from pillarbox.mailbox.protocol import Mailbox, State
from pillarbox.mailbox.url import open_mailbox

if TYPE_CHECKING:
    from pillarbox.broker.server import Broker

HISTORY_ENTRIES_MAX = 20_000  # how far a message's history is followed through the log
FIND_MAX = 1_000_000  # how far down a line can be looked
HEAP_MAX = 5_000  # the same where the line is a heap
STATES: tuple[State, ...] = get_args(State)


class Totals(NamedTuple):
    """Since the start: what came in, what was done, and who waits for more."""

    sent: int
    done: int
    consumers: int


class Step(NamedTuple):
    """One entry of a message's history."""

    at: datetime | None
    kind: str
    detail: str


class Found(NamedTuple):
    """A message that is looked at, and what state it is in."""

    message: Message[Any]
    state: State


class Boxes(Protocol):
    """The mailboxes that a dashboard shows."""

    title: str

    def names(self) -> Sequence[str]: ...
    def open(self, name: str) -> Mailbox[bytes] | None:
        """The mailbox with this name; None if there is none."""

    def look(self, name: str, state: State, count: int, skip: int) -> Sequence[Message[Any]]:
        """Messages in the order of their line, from some place on; all stays as it is.

        None are beyond what can be looked at in good time.
        """

    def find(self, name: str, message_id: str) -> Found | None:
        """One message by its id, if it is within reach."""

    def totals(self, name: str) -> Totals | None:
        """None where nobody counts."""

    def history(self, name: str, message_id: str) -> list[Step]:
        """What happened to a message so far, where that is on record."""


class _Line(LocalMailbox[bytes]):
    """A queue of the broker, which can be looked at from anywhere in its line."""

    def look(self, state: State, count: int, skip: int) -> list[Message[Any]]:
        reach = FIND_MAX if state == "ready" else HEAP_MAX
        found = self._desk.look(state, min(count, reach - skip), skip) if skip < reach else ()
        return [self._seen(record, number, Message, self) for record, number in found]

    def found(self, key: int) -> Found | None:
        known = self._desk.find(key)
        if known is None:
            return None
        record, number, state = known
        return Found(self._seen(record, number, Message, self), state)


class BrokerBoxes:
    """The queues of a broker in this process."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._store = broker.store
        self.title = broker.config.data or "in memory"

    def names(self) -> Sequence[str]:
        return list(self._store.desks)

    def open(self, name: str) -> Mailbox[bytes] | None:
        return self._line(name) if name in self._store.desks else None

    def look(self, name: str, state: State, count: int, skip: int) -> Sequence[Message[Any]]:
        return self._line(name).look(state, count, skip)

    def find(self, name: str, message_id: str) -> Found | None:
        key = self._store.key_of(message_id)
        return None if key is None else self._line(name).found(key)

    def totals(self, name: str) -> Totals:
        totals = self._broker.metrics.of(name)
        desk = self._store.desks.get(name)
        return Totals(totals.sent, totals.deleted, len(desk.waiters) if desk is not None else 0)

    def history(self, name: str, message_id: str) -> list[Step]:
        store = self._store
        key = store.key_of(message_id)
        if not isinstance(store, DurableStore) or key is None:
            return []
        known = store.desks[name].find(key)
        return [] if known is None else self._follow(store, key, index_of(known[0].body))

    def _line(self, name: str) -> _Line:
        return _Line(self._store.desks[name], bytes, open_reply=self._no_reply)

    def _follow(self, store: DurableStore, key: int, start: int) -> list[Step]:
        """The entries about a message, from where its body lies on."""
        steps = []
        left = HISTORY_ENTRIES_MAX
        for frame in store.log.frames(max(start, store.log.first_index)):
            for data in frame.records:
                entry = journal.decode(data)
                if entry.key == key:
                    steps.append(_step(entry, key))
            left -= len(frame.records)
            if left <= 0:
                break
        return steps

    def _no_reply(self, name: str) -> Any:
        raise NotImplementedError("a dashboard answers no message")


def _step(entry: journal.Entry, key: int) -> Step:
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
    return Step(time, journal.KINDS[entry.kind].replace("_", " "), detail)


class UrlBoxes:
    """Mailboxes by their URLs: Redis, SQS, a store on disk, another broker."""

    def __init__(self, urls: Sequence[str]) -> None:
        self.title = ", ".join(urls)
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

    def look(self, name: str, state: State, count: int, skip: int) -> Sequence[Message[Any]]:
        most = min(skip + count, MESSAGES_MAX)
        return self._boxes[name].peek(most, state=state)[skip:] if most > skip else ()

    def find(self, name: str, message_id: str) -> Found | None:
        for state in STATES:
            for message in self.look(name, state, MESSAGES_MAX, 0):
                if message.id == message_id:
                    return Found(message, state)
        return None

    def totals(self, name: str) -> Totals | None:
        return None

    def history(self, name: str, message_id: str) -> list[Step]:
        return []

    def close(self) -> None:
        for box in self._boxes.values():
            box.close()
