"""A queue of a store that several brokers serve, as the SQS actions use it.

A broker caches a queue's attributes with their version. The store refuses calls with another
version, and the broker reloads the attributes. No other state of a queue is in its memory.
"""

from __future__ import annotations

import hashlib
import hmac
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Final, TypeVar

from pillarbox.broker import errors
from pillarbox.broker.attributes import by_group
from pillarbox.broker.errors import SqsError
from pillarbox.broker.queue import Accepted, BrokerQueue, Delivery, Draft
from pillarbox.core.errors import MailboxError
from pillarbox.core.limits import SECOND_NS
from pillarbox.core.queue import NEVER, Attempt, Death, Extra, Lease, Record
from pillarbox.core.sqs_limits import VISIBILITY_SECONDS_MAX
from pillarbox.mailbox.protocol import Stats
from pillarbox.mailbox.runner import Verb
from pillarbox.mailbox.shared import (
    CrowdedQueueError,
    QueueDescription,
    SharedDelivery,
    SharedDraft,
    SharedQueueVerbs,
    StaleQueueError,
    in_rows,
)

if TYPE_CHECKING:
    from pillarbox.broker.shared_queues import SharedQueues
    from pillarbox.broker.sqs_request import SqsRequest

R = TypeVar("R")

DEDUPLICATION_NOTE: Final = "pillarbox.deduplication"
_SWEPT_AT_ONCE: Final = 100
_HELD_NS_MAX: Final = VISIBILITY_SECONDS_MAX * SECOND_NS


class SharedQueue(BrokerQueue):
    """A queue at a version."""

    def __init__(self, queues: SharedQueues, name: str, found: QueueDescription) -> None:
        self._queues, self._store = queues, queues.store
        self._message_id = queues.message_id
        self._traffic = queues.heartbeat.traffic[name]
        super().__init__(name, found.notes)
        self._take(found)

    def _take(self, found: QueueDescription) -> None:
        self.described = found
        self.verbs: SharedQueueVerbs = self._queues.verbs(self.name, found.version)

    @property
    def fair(self) -> bool:  # type: ignore[override]
        return self.described.fair

    @property
    def dead_letters(self) -> tuple[str, int] | None:
        dead = self.described.dead
        return None if dead is None else (dead, self.described.max_deliveries)

    async def refresh(self) -> None:
        """Reload the queue; raise if it was deleted."""
        found = await self._queues.do(self._store.describe(self.name))
        if found is None:
            self._queues.forget(self.name)
            raise errors.no_such_queue()
        self.read(found.notes)
        self._take(found)

    async def _do(self, verb: Callable[[SharedQueueVerbs], Verb[R]]) -> R:
        """Run a verb, reloading the queue as long as its version is stale."""
        while True:
            try:
                return await self._queues.do(verb(self.verbs))
            except StaleQueueError:
                await self.refresh()

    # -- sending -------------------------------------------------------------------------------

    async def send(self, drafts: Sequence[Draft]) -> Sequence[Accepted | SqsError]:
        """Send drafts, which depend on this version: if it is stale, the caller redoes them."""
        verbs = self.verbs
        outcomes: list[Accepted | SqsError] = []
        for row in in_rows(map(self._shared, drafts), verbs.alike):
            try:
                ids = await self._queues.do(verbs.send_shared(row))
            except (StaleQueueError, MailboxError) as error:
                if isinstance(error, StaleQueueError):
                    await self.refresh()
                if not outcomes:
                    raise
                return outcomes + [_failed(error)] * (len(drafts) - len(outcomes))
            self._traffic.sent += len(ids)
            outcomes += [Accepted(self._message_id(each.id), each.sequence) for each in ids]
        return outcomes

    def _shared(self, draft: Draft) -> SharedDraft:
        extra, attributes = draft.extra, draft.attributes
        found = SharedDraft(draft.body, draft.delay, draft.priority, attributes)
        if extra is not None:
            found.group = extra.group
        if extra is not None and extra.deduplication is not None:
            found.deduplication = extra.deduplication
            if by_group(self.described.notes, self._queues.now_seconds()):
                found.deduplication = f"{extra.group} {extra.deduplication}"
            found.attributes = {**(attributes or {}), DEDUPLICATION_NOTE: extra.deduplication}
        return found

    # -- receiving -----------------------------------------------------------------------------

    async def receive(
        self, request: SqsRequest, count: int, timeout_ns: int, wait_ns: int, attempt: str | None
    ) -> Sequence[Delivery]:
        until = time.monotonic_ns() + wait_ns
        metrics = request.broker.metrics
        metrics.parked += wait_ns > 0
        self._traffic.waiting += wait_ns > 0
        try:
            found = await self._do(
                lambda verbs: verbs.receive_shared(
                    count, timeout_ns, max(0, until - time.monotonic_ns()), attempt
                )
            )
        except CrowdedQueueError:
            if wait_ns:
                return ()
            raise errors.too_many_in_flight(self.name) from None
        finally:
            metrics.parked -= wait_ns > 0
            self._traffic.waiting -= wait_ns > 0
        if not found:
            return ()
        self._traffic.received += len(found)
        pairs = [(each.id.id, each.token) for each in found]
        request.unsent = partial(self._give_back, pairs)
        return [self._delivery(each) for each in found]

    def _give_back(self, pairs: list[tuple[str, bytes]]) -> None:
        """Return messages that the client did not read."""
        self._queues.in_background(self._do(lambda verbs: verbs.give_back(pairs)))

    def _delivery(self, found: SharedDelivery) -> Delivery:
        noted = found.attributes
        record = Record(found.sent_at >> 1, b"", found.priority, found.number - 1, noted or None)
        first = Attempt(found.first_leased_at, 0, "expired")
        death = Death(found.source, "", 0) if found.source is not None else None
        extra = Extra(found.group, noted.get(DEDUPLICATION_NOTE), attempts=(first,), death=death)
        lease = Lease(record, found.number, found.leased_at, 0, 0, extra)
        handle = self._handle(found)
        return Delivery(self._message_id(found.id.id), handle, found.id.sequence, lease, found.body)

    # -- by receipt handle ---------------------------------------------------------------------

    def _handle(self, found: SharedDelivery) -> str:
        plain = f"{found.id.id}.{found.token.hex()}"
        return f"{plain}.{self._sign(plain)}"

    def _sign(self, plain: str) -> str:
        # A name has no slash, so the signed text is unambiguous.
        text = f"{self.name}/{plain}".encode(errors="surrogatepass")
        return hashlib.blake2b(text, key=self._queues.secret, digest_size=16).hexdigest()

    def _delivery_of(self, handle: str | None) -> tuple[str, bytes]:
        """Return the message id and the lease token in a handle."""
        if not handle:
            raise errors.missing("ReceiptHandle")
        plain, _, signature = handle.rpartition(".")
        known = self._sign(plain).encode()
        if not hmac.compare_digest(signature.encode(errors="surrogatepass"), known):
            raise errors.invalid_handle(handle)
        message_id, _, token = plain.rpartition(".")
        return message_id, bytes.fromhex(token)

    async def delete(self, handles: Sequence[str | None]) -> Sequence[SqsError | None]:
        refusals: list[SqsError | None] = [None] * len(handles)
        named: dict[int, tuple[str, bytes]] = {}
        for at, handle in enumerate(handles):
            try:
                named[at] = self._delivery_of(handle)
            except SqsError as error:
                refusals[at] = error
        if not named:
            return refusals
        held = await self._do(lambda verbs: verbs.delete_held(list(named.values())))
        self._traffic.deleted += sum(held)
        stale = {at: named[at][0] for at, was in zip(named, held, strict=True) if not was}
        if stale and not self.fifo:
            late = list(stale.values())
            self._traffic.deleted += await self._do(lambda verbs: verbs.delete_any(late))
        elif stale:
            there = await self._do(lambda verbs: verbs.exist(list(stale.values())))
            for at, exists in zip(stale, there, strict=True):
                if exists:
                    refusals[at] = errors.expired_handle(handles[at])
        return refusals

    async def change_visibility(self, handle: str | None, seconds: int) -> None:
        delivery = self._delivery_of(handle)
        timeout = seconds * SECOND_NS
        done = await self._do(
            lambda verbs: verbs.change_shared(
                delivery, timeout, _HELD_NS_MAX, holder_only=self.fifo
            )
        )
        if done is None:
            raise errors.beyond_limit(seconds)
        if not done:
            raise errors.not_available(handle)

    # -- the whole queue -----------------------------------------------------------------------

    async def purge(self, interval_seconds: int) -> None:
        begun = self._store.begin_purge(self.name, interval_seconds)
        if not await self._queues.do(begun):
            raise errors.purge_in_progress(self.name, interval_seconds)
        await self._do(lambda verbs: verbs.purge_shared())

    async def waiting(self, count: int) -> list[tuple[str, str | None]]:
        return await self._do(lambda verbs: verbs.waiting(count))

    async def redrive(self, ids: Mapping[str, Sequence[str]], to: str | None) -> int:
        chosen = list(chain.from_iterable(ids.values()))
        return await self._do(lambda verbs: verbs.redrive_shared(chosen, to))

    async def sweep(self) -> None:
        """Delete messages that are too old."""
        while self.retention_ns < NEVER:
            if await self._do(lambda verbs: verbs.sweep(_SWEPT_AT_ONCE)) < _SWEPT_AT_ONCE:
                return

    async def stats(self) -> Stats:
        return await self._do(lambda verbs: verbs.stats())


def _failed(error: StaleQueueError | MailboxError) -> SqsError:
    """Return the error for messages of a batch whose first part was sent."""
    if isinstance(error, MailboxError):
        return errors.of_mailbox(error)
    return SqsError("ServiceUnavailable", "The queue was changed meanwhile: try again.")
