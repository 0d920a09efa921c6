"""What a dashboard looks at: mailboxes by name, whatever is behind them.

Bodies are bytes here, shown as they are. `BrokerBoxes` stands in the broker's own process and
never blocks; `UrlBoxes` asks over the network, so its calls belong on another thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from pillarbox.core import journal
from pillarbox.core.limits import SECOND_NS
from pillarbox.mailbox.ledger import DurableStore
from pillarbox.mailbox.local import LocalMailbox
from pillarbox.mailbox.location import index_of
from pillarbox.mailbox.protocol import Mailbox
from pillarbox.mailbox.url import open_mailbox

if TYPE_CHECKING:
    from pillarbox.broker.server import Broker

HISTORY_ENTRIES_MAX = 50_000  # how far a message's history is followed through the log


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


class Boxes(Protocol):
    """The mailboxes that a dashboard shows."""

    blocking: bool
    title: str

    def names(self) -> Sequence[str]: ...
    def open(self, name: str) -> Mailbox[bytes] | None:
        """The mailbox with this name; None if there is none."""

    def totals(self, name: str) -> Totals | None:
        """None where nobody counts."""

    def history(self, name: str, message_id: str) -> list[Step]:
        """What happened to a message so far, where that is on record."""


class BrokerBoxes:
    """The queues of a broker in this process."""

    blocking = False

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._store = broker.store
        self.title = broker.config.data or "in memory"

    def names(self) -> Sequence[str]:
        return sorted(self._store.desks)

    def open(self, name: str) -> Mailbox[bytes] | None:
        desk = self._store.desks.get(name)
        if desk is None:
            return None
        box: LocalMailbox[bytes] = LocalMailbox(desk, bytes, open_reply=self._no_reply)
        return box

    def totals(self, name: str) -> Totals:
        totals = self._broker.metrics.of(name)
        return Totals(totals.sent, totals.deleted, len(self._store.desks[name].waiters))

    def history(self, name: str, message_id: str) -> list[Step]:
        store = self._store
        key = store.key_of(message_id)
        if not isinstance(store, DurableStore) or key is None:
            return []
        desk = store.desks[name]
        seen = next(
            (
                record
                for state in ("ready", "scheduled", "in_flight")
                for record, _ in desk.look(state, HISTORY_ENTRIES_MAX)
                if record.key == key
            ),
            None,
        )
        return [] if seen is None else self._follow(store, key, index_of(seen.body))

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

    def _no_reply(self, name: str, body_type: Any) -> Any:
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

    blocking = True

    def __init__(self, urls: Sequence[str]) -> None:
        self.title = ", ".join(urls)
        self._boxes: dict[str, Mailbox[bytes]] = {}
        for url in urls:
            box = open_mailbox(url, bytes)
            self._boxes[box.name] = box
            if box.dead_letters is not None:
                self._boxes[box.dead_letters.name] = box.dead_letters

    def names(self) -> Sequence[str]:
        return sorted(self._boxes)

    def open(self, name: str) -> Mailbox[bytes] | None:
        return self._boxes.get(name)

    def totals(self, name: str) -> Totals | None:
        return None

    def history(self, name: str, message_id: str) -> list[Step]:
        return []

    def close(self) -> None:
        for box in self._boxes.values():
            box.close()
