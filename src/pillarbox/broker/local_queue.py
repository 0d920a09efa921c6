"""A queue of the broker's own store, as the SQS actions use it."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec

from pillarbox.broker import errors
from pillarbox.broker.errors import SqsError
from pillarbox.broker.moves import MoveTask
from pillarbox.broker.parked_polls import give_back, poll, read_bodies
from pillarbox.broker.queue import Accepted, BrokerQueue, Delivery, Draft
from pillarbox.broker.retention import lease_fresh
from pillarbox.core import decide
from pillarbox.core.errors import MailboxError
from pillarbox.core.events import Event, Removed, Scheduled, Sent
from pillarbox.core.limits import SECOND_NS
from pillarbox.core.queue import NEVER, Lease, Queue, Record
from pillarbox.core.sqs_limits import VISIBILITY_SECONDS_MAX
from pillarbox.mailbox.protocol import Stats
from pillarbox.mailbox.queue_session import QueueSession
from pillarbox.tracing import accepting

if TYPE_CHECKING:
    from pillarbox.broker.sqs_request import SqsRequest


_ATTEMPT_NS: Final = 300 * SECOND_NS
_ATTEMPTS_MAX: Final = 10_000


class Attempts:
    """The messages delivered for each ReceiveRequestAttemptId of the last five minutes.

    A FIFO client that lost a response can ask for it again.
    """

    def __init__(self) -> None:
        self._known: OrderedDict[str, tuple[int, Sequence[Lease]]] = OrderedDict()

    def keep(self, attempt: str, leases: Sequence[Lease]) -> None:
        self._known[attempt] = (leases[0].leased_at + _ATTEMPT_NS, leases)
        self._known.move_to_end(attempt)
        while len(self._known) > _ATTEMPTS_MAX:
            self._known.popitem(last=False)

    def again(self, attempt: str, session: QueueSession, timeout: int) -> Sequence[Lease]:
        """Extend and return the same leases; none if any message was touched since."""
        until, leases = self._known.get(attempt, (0, ()))
        now = session.store.clock.now()
        living = now < until and all(lease.deadline > now for lease in leases)
        if living and all(session.extend(leases, timeout)):
            return leases
        self._known.pop(attempt, None)
        return ()


class LocalQueue(BrokerQueue):
    """A queue in this process; each operation is a step of its session."""

    def __init__(self, session: QueueSession) -> None:
        self.session = session
        self.purged_at: int | None = None
        self.look_at = NEVER  # when a message may exceed the retention period
        session.leases_by_key()
        self.attempts = Attempts()
        self.move_tasks = msgspec.convert(session.notes.get("moves", []), list[MoveTask])
        super().__init__(session.queue.name, session.notes)

    @property
    def fair(self) -> bool:  # type: ignore[override]
        return self.session.queue.settings.fair

    @property
    def dead_letters(self) -> tuple[str, int] | None:
        dead = self.session.dead
        if dead is None:
            return None
        return dead.queue.name, self.session.queue.settings.max_deliveries

    @property
    def epoch_ns(self) -> int:
        return self.session.store.clock.epoch_ns

    # -- sending -------------------------------------------------------------------------------

    async def send_one(self, draft: Draft) -> Accepted:
        attributes, extra, session = draft.attributes, draft.extra, self.session
        special = None if extra is None else lambda: extra
        with accepting(self.name, attributes):
            (key,) = session.send((draft.body,), draft.priority, draft.delay, attributes, special)
        return Accepted(session.store.message_id(key), key)

    async def send(self, drafts: Sequence[Draft]) -> Sequence[Accepted | SqsError]:
        """Send all drafts, in one step for each distinct delay."""
        delays = {each.delay for each in drafts}
        if len(delays) == 1:
            return self._send(drafts, *delays)
        outcomes: dict[int, Accepted | SqsError] = {}
        for delay in delays:
            places = [at for at, each in enumerate(drafts) if each.delay == delay]
            try:
                accepted = self._send([drafts[at] for at in places], delay)
                outcomes.update(zip(places, accepted, strict=True))
            except MailboxError as error:
                outcomes.update(dict.fromkeys(places, errors.of_mailbox(error)))
        return [outcomes[at] for at in range(len(drafts))]

    def _send(self, drafts: Sequence[Draft], delay: int) -> list[Accepted]:
        store = self.session.store
        keys: Sequence[int] = ()
        records: list[Record] = []

        def decide_events(state: Queue, now: int) -> list[Event]:
            nonlocal keys, records
            keys = store.new_keys(now, len(drafts))
            records = [
                Record(key, each.body, each.priority, 0, each.attributes, each.extra)
                for key, each in zip(keys, drafts, strict=True)
            ]
            fresh = decide.send(state, records, now)
            if not fresh:
                return []
            return [Scheduled(fresh, now + delay) if delay else Sent(fresh)]

        with ExitStack() as spans:
            for each in drafts:
                if each.attributes is not None:
                    spans.enter_context(accepting(self.name, each.attributes))
            self.session.step(decide_events)
        if self.fifo:  # a duplicate has the key of the original
            now = store.clock.now()
            keys = [decide.original(self.session.queue, record, now) for record in records]
        return list(map(Accepted, store.message_ids(keys), keys))

    # -- receiving -----------------------------------------------------------------------------

    async def receive(
        self, request: SqsRequest, count: int, timeout_ns: int, wait_ns: int, attempt: str | None
    ) -> Sequence[Delivery]:
        broker, session = request.broker, self.session
        consumer = broker.consumers.of(request.http, self.name, request.principal.name)
        if attempt is not None and (again := self.attempts.again(attempt, session, timeout_ns)):
            request.unsent = partial(give_back, session, again)
            return self._deliveries(again, await read_bodies(session, again))
        if session.queue.in_flight >= broker.config.in_flight_max:
            if not wait_ns:
                raise errors.too_many_in_flight(self.name)
            count = 0  # too many in flight: wait, and deliver nothing
        leases = lease_fresh(broker, self, count, timeout_ns) if count else ()
        if leases:
            consumer.hold(leases)
        else:
            if not wait_ns or broker.closed:
                return ()
            leases = await poll(broker, session, consumer, count, timeout_ns, wait_ns)
            if broker.store.sessions.get(self.name) is not session:
                raise errors.no_such_queue()
            if not leases:
                return ()
        broker.metrics.delivered(leases)
        if attempt is not None:
            self.attempts.keep(attempt, leases)
        request.unsent = partial(give_back, session, leases)
        return self._deliveries(leases, await read_bodies(session, leases))

    def _deliveries(
        self, leases: Sequence[Lease], bodies: Sequence[bytes | None]
    ) -> Sequence[Delivery]:
        session = self.session
        store, queue = session.store, session.queue
        found = []
        for lease, body in zip(leases, bodies, strict=True):
            if body is None:  # lost to disk damage; it must not block the rest
                session.reject((lease,), "the body was lost")
            else:
                key = lease.record.key
                handle = store.handle(queue, lease)
                found.append(Delivery(store.message_id(key), handle, key, lease, body))
        return found

    # -- by receipt handle ---------------------------------------------------------------------

    def _lease_of(self, handle: str | None) -> tuple[int, Lease | None]:
        """Return the message key of a handle, and its lease if that is still valid."""
        if not handle:
            raise errors.missing("ReceiptHandle")
        store, state = self.session.store, self.session.queue
        lease = store.lease_of(state, handle)
        if lease is not None and lease.deadline > store.clock.now():
            return lease.record.key, lease
        delivery = store.delivery_of(state, handle)
        if delivery is None:
            raise errors.invalid_handle(handle)
        return delivery[0], None

    async def delete_one(self, handle: str | None) -> None:
        key, lease = self._lease_of(handle)
        stale = lease is None or not self.session.acknowledge((lease,))[0]
        if stale and self._delete_stale((key,)):
            raise errors.expired_handle(handle)

    async def delete(self, handles: Sequence[str | None]) -> Sequence[SqsError | None]:
        """Delete messages with valid leases in one step, then those with old handles."""
        refusals: list[SqsError | None] = [None] * len(handles)
        found: list[tuple[int, int, Lease | None]] = []
        for at, handle in enumerate(handles):
            try:
                found.append((at, *self._lease_of(handle)))
            except SqsError as error:
                refusals[at] = error
        leases = [lease for _, _, lease in found if lease is not None]
        # A lease may have ended since, or its handle may be repeated in the batch.
        ended = iter(self.session.acknowledge(leases) if leases else ())
        stale = {at: key for at, key, lease in found if lease is None or not next(ended)}
        refused = self._delete_stale(stale.values()) if stale else ()
        for at, key in stale.items():
            if key in refused:
                refusals[at] = errors.expired_handle(handles[at])
        return refusals

    def _delete_stale(self, keys: Iterable[int]) -> set[int]:
        """Delete messages by old handles, and return the keys for which that is refused.

        Standard queues accept old handles. On a FIFO queue such a handle has expired, unless the
        message is already gone.
        """
        refused: set[int] = set()

        def decide_events(state: Queue, now: int) -> list[Removed]:
            found = decide.remove(state, list(keys))
            if self.fifo:
                refused.update(found.keys)
            return [found] if found.keys and not self.fifo else []

        self.session.step(decide_events)
        return refused

    async def change_visibility(self, handle: str | None, seconds: int) -> None:
        key, lease = self._lease_of(handle)
        session, timeout = self.session, seconds * SECOND_NS
        if lease is None and not self.fifo and session.find(key) is not None:
            session.step(lambda state, now: decide.change_visibility(state, key, timeout, now))
            return
        if lease is not None:
            if seconds == 0:
                if session.nack((lease,), 0)[0]:
                    return
            else:
                limit = lease.leased_at + VISIBILITY_SECONDS_MAX * SECOND_NS
                if session.store.clock.now() + timeout > limit:
                    raise errors.beyond_limit(seconds)
                if session.extend((lease,), timeout)[0]:
                    return
        raise errors.not_available(handle)

    # -- the whole queue -----------------------------------------------------------------------

    async def purge(self, interval_seconds: int) -> None:
        now = self.session.store.clock.now()
        if self.purged_at is not None and now < self.purged_at + interval_seconds * SECOND_NS:
            raise errors.purge_in_progress(self.name, interval_seconds)
        self.session.purge()
        self.purged_at = now

    async def waiting(self, count: int) -> list[tuple[str, str | None]]:
        found = []
        for record, _ in self.session.look("ready", count):
            death = record.extra.death if record.extra is not None else None
            found.append((str(record.key), death.source if death is not None else None))
        return found

    async def redrive(self, ids: Mapping[str, Sequence[str]], to: str | None) -> int:
        session, sessions = self.session, self.session.store.sessions
        return sum(session.redrive({*map(int, some)}, sessions[x]) for x, some in ids.items())

    async def stats(self) -> Stats:
        ready, scheduled, in_flight, dead, age = self.session.counts()
        seconds = None if age is None else age / SECOND_NS
        return Stats(ready, scheduled, in_flight, dead, seconds)
