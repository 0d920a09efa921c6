"""The mailboxes of a store that several brokers share, for the dashboard of each.

Everything is read from the store, so every broker shows the same. Messages have the ids that SQS
clients see. These can't be converted back to ids of the store, so a mapping of shown ids is kept.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from time import monotonic
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from pillarbox.broker.heartbeat import SeenBroker
from pillarbox.broker.shared_queues import SharedQueues
from pillarbox.core.errors import MailboxError
from pillarbox.core.limits import MESSAGES_MAX
from pillarbox.dashboard.admin import QueueAdmin
from pillarbox.dashboard.mailboxes import STATES, Mailboxes, Totals, Until
from pillarbox.mailbox.abstract import AbstractMailbox
from pillarbox.mailbox.message import Message, Undecodable, as_datetime
from pillarbox.mailbox.protocol import State
from pillarbox.mailbox.runner import Runnable, run_sync
from pillarbox.mailbox.shared import QueueDescription, StaleQueueError

if TYPE_CHECKING:
    from pillarbox.broker.server import Broker

R = TypeVar("R")
T = TypeVar("T")

FOUND_MAX = 1_000  # messages of each state to search for an id
NAMES_SECONDS = 5.0  # how long descriptions of queues are cached
IDS_MAX = 100_000


class _SharedMessage(Message[T], Generic[T], frozen=True, eq=False, gc=False):
    """A message with the id that SQS clients see."""

    @property
    def id(self) -> str:
        mailbox: StoreMailbox = self._mailbox
        return mailbox.boxes.shown_id(super().id)


class StoreMailbox(AbstractMailbox[bytes]):
    """A queue of the store. Methods run in the caller's thread, their I/O on the broker's loop."""

    _kind = _SharedMessage

    def __init__(self, boxes: StoreMailboxes, name: str, described: QueueDescription) -> None:
        self.boxes, self.described = boxes, described
        self._verbs = boxes.queues.store.queue(name, "", 1)  # type: ignore[assignment]
        self._run = self._run_on_loop

    def _run_on_loop(self, verb: Runnable[R]) -> R:
        try:
            return run_sync(self.boxes.ask, verb)
        except StaleQueueError:
            raise MailboxError(f"queue {self.name!r} was deleted or changed: reload") from None

    @property
    def dead_letters(self) -> StoreMailbox | None:
        dead = self.described.dead
        return None if dead is None else self.boxes.open(dead)

    def delete(self, ids: Iterable[str]) -> int:
        return super().delete(self.boxes.store_ids(self, ids))

    def redrive(
        self,
        ids: Iterable[str] | None = None,
        *,
        where: Callable[[Message[bytes | Undecodable]], bool] | None = None,
        to: str | None = None,
    ) -> int:
        chosen = None if ids is None else self.boxes.store_ids(self, ids)
        return super().redrive(chosen, where=where, to=to)

    def times(self, state: State, count: int) -> dict[str, int]:
        verb: Any = self._verbs
        times: dict[str, int] = self._run(verb.times(state, count))
        return {self.boxes.shown_id(each): at for each, at in times.items()}


class StoreMailboxes(Mailboxes):
    """The queues of the store that a broker shares with others."""

    found_max = FOUND_MAX

    def __init__(self, broker: Broker, queues: SharedQueues, title: str) -> None:
        self._broker, self.queues, self.title = broker, queues, title
        self.address = title
        self.admin = QueueAdmin(broker)
        self._described: dict[str, QueueDescription] = {}
        self._described_at = -NAMES_SECONDS
        self._refreshed = 0  # the number of refreshes
        self._ids: dict[str, str] = {}  # ids of the store, by shown id

    @property
    def secret(self) -> bytes:
        return self.queues.secret

    def ask(self, request: Any) -> Any:
        """Make one request to the store, on the broker's event loop."""
        store, loop = self.queues.store, self._broker.loop
        return asyncio.run_coroutine_threadsafe(store.do(request), loop).result()

    def shown_id(self, store_id: str) -> str:
        shown = self.queues.message_id(store_id)
        if len(self._ids) >= IDS_MAX:
            self._ids.clear()
        self._ids[shown] = store_id
        return shown

    def store_ids(self, box: StoreMailbox, shown: Iterable[str]) -> list[str]:
        """Return the store's ids of messages that this or another broker has shown."""
        wanted = list(shown)
        if any(each not in self._ids for each in wanted):
            for state in STATES:
                for message in box.peek(FOUND_MAX, state=state):
                    self.shown_id(message._mailbox._verbs.message_id(message._delivery))
        return [self._ids[each] for each in wanted if each in self._ids]

    def names(self) -> Sequence[str]:
        if monotonic() - self._described_at >= NAMES_SECONDS:
            queues, loop = self.queues, self._broker.loop
            described = queues.of_all(lambda name: queues.do(queues.store.describe(name)))
            refreshed = self._refreshed
            self._described = dict(asyncio.run_coroutine_threadsafe(described, loop).result())
            if refreshed == self._refreshed:  # else it may be older than the last refresh
                self._described_at = monotonic()
        return list(self._described)

    def refresh(self) -> None:
        self._refreshed += 1
        self._described_at = -NAMES_SECONDS

    def open(self, name: str) -> StoreMailbox | None:
        """Open a mailbox; describe the queue anew unless it was described recently."""
        described = self._described.get(name)
        if described is None or monotonic() - self._described_at >= NAMES_SECONDS:
            described = run_sync(self.ask, self.queues.store.describe(name))
        if described is None:
            return None
        self._described[name] = described
        return StoreMailbox(self, name, described)

    def times(self, name: str, state: State, count: int, skip: int) -> dict[str, Until]:
        box = self.open(name) if state != "ready" else None
        times = box.times(state, min(skip + count, MESSAGES_MAX)) if box is not None else {}
        return {each: Until(as_datetime(at)) for each, at in times.items()}

    def is_paused(self, name: str) -> bool:
        described = self._described.get(name)
        return described is not None and described.paused

    def totals(self, name: str) -> Totals:
        total = self.queues.heartbeat.total(name)
        return Totals(total.sent, total.deleted, total.waiting)

    def brokers(self) -> list[SeenBroker]:
        return self.queues.heartbeat.brokers()
