"""The queues of the broker's own store, as the SQS actions use them.

A queue's SQS attributes and tags are stored as its notes, and read into a `LocalQueue` once. A
queue that was not created through the SQS API has no notes: it gets the defaults of SQS, and the
broker's own dead-letter policy.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from pillarbox.broker.attributes import SCOPE_BEFORE, by_group, redrive_policy
from pillarbox.broker.config import DeclaredQueue, blaming_configuration
from pillarbox.broker.errors import SqsError, no_such_queue
from pillarbox.broker.local_queue import LocalQueue
from pillarbox.broker.queue import BrokerQueue, Queues
from pillarbox.broker.queue_names import FIFO_SUFFIX, namespace_of, plain_name
from pillarbox.core.limits import SECOND_NS, queue_name
from pillarbox.core.queue import DEFAULT_SETTINGS, Settings
from pillarbox.mailbox.queue_session import QueueSession

if TYPE_CHECKING:
    from pillarbox.broker.server import Broker
    from pillarbox.broker.sqs_request import SqsRequest

_URLS_MAX = 10_000
_URL_CHARS_MAX = 500  # longer ones are not cached; the host can be anything


class LocalQueues(Queues):
    """All queues of the store. Its coroutines never wait."""

    def __init__(self, broker: Broker) -> None:
        super().__init__(broker)
        self._store = broker.store
        self._watch = broker.housekeeping.watch  # called when a retention period changes
        self._orphans: dict[str, set[str]] = {}  # by missing dead-letter queue: its sources
        self._known: dict[str, LocalQueue] = {}
        self._by_url: dict[tuple[str, str | None], LocalQueue] = {}  # a cache, by namespace too
        self._dropped_at: dict[str, int] = {}
        self._scopes: dict[str, int] = {}  # by queue: when its new DeduplicationScope takes effect

    def __iter__(self) -> Iterator[LocalQueue]:
        return iter([self.get(name) for name in sorted(self._store.sessions)])

    def find_now(self, name: str) -> LocalQueue | None:
        """As `find`, for callers that can't await."""
        session = self._store.sessions.get(name)
        if session is None:
            return None
        known = self._known.get(name)
        if known is None or known.session is not session:
            known = self._known[name] = LocalQueue(session)
            self._watch(known)
        return known

    def get(self, name: str) -> LocalQueue:
        found = self.find_now(name)
        if found is None:
            raise no_such_queue()
        return found

    async def by_url(
        self, request: SqsRequest, url: str | None, *, fresh: bool = False
    ) -> BrokerQueue:
        namespace = request.namespace
        known = self._by_url.get((namespace, url))
        if known is not None and self._store.sessions.get(known.name) is known.session:
            return known
        found = await super().by_url(request, url, fresh=fresh)
        cacheable = len(url or "") <= _URL_CHARS_MAX and namespace_of(found.name) == namespace
        if cacheable and isinstance(found, LocalQueue):
            if len(self._by_url) >= _URLS_MAX:
                self._by_url.clear()
            self._by_url[namespace, url] = found
        return found

    async def find(self, name: str) -> LocalQueue | None:
        return self.find_now(name)

    async def names(self) -> Iterable[str]:
        return self._store.sessions

    def session(self, name: str, settings: Settings = DEFAULT_SETTINGS) -> QueueSession:
        """Return a queue's session for a client of the private protocol; create it if needed."""
        session = self._store.sessions.get(name)
        if session is not None:
            return session
        session = self._store.session(queue_name(name), settings)
        dead_name = self._names.dead_letters_of(name)
        if dead_name is not None:
            target = self._store.session(dead_name)
            if target.dead is None:
                self._store.set_dead_letters(session, target, self._broker.config.max_deliveries)
        return session

    async def open(self, name: str) -> None:
        self.session(name)

    async def ensure(self, name: str) -> None:
        self._store.session(name)

    async def pause(self, name: str, *, paused: bool) -> None:
        self._store.pause(self.get(name).session, paused=paused)

    async def start(self) -> None:
        """Load the settings of all queues, before the first request."""
        for queue in self:
            if SCOPE_BEFORE in queue.session.notes:
                self._scopes[queue.name] = queue.session.notes[SCOPE_BEFORE][1]
            value = queue.given.get("RedrivePolicy")
            if value and queue.session.dead is None:
                target = plain_name(redrive_policy(value).deadLetterTargetArn)
                full_name = namespace_of(queue.name) + target
                self._orphans.setdefault(full_name, set()).add(queue.name)

    async def declare(self, declared: Mapping[str, DeclaredQueue]) -> None:
        notes = {name: wanted.notes(name) for name, wanted in declared.items()}
        policies = {
            name: known["attributes"].pop("RedrivePolicy")
            for name, known in notes.items()
            if "RedrivePolicy" in known["attributes"]
        }
        for name, value in policies.items():
            self._store.session(name, Settings(dead_on_receive=True))
            target = plain_name(redrive_policy(value).deadLetterTargetArn)
            if target in declared:  # a dead-letter queue gets no policy of its own
                self._store.session(target)
        for name, known in notes.items():
            with blaming_configuration(name):
                await self._declare(name, known)
        for name, value in policies.items():  # once all queues exist
            queue = self.get(name)
            if queue.given.get("RedrivePolicy") != value or queue.session.dead is None:
                given = {**queue.given, "RedrivePolicy": value}
                with blaming_configuration(name):
                    await self.change(queue, attributes=given)

    async def _declare(self, name: str, notes: dict[str, Any]) -> None:
        self.session(name)
        queue = self.get(name)
        kept = {**queue.given, **notes["attributes"]}
        if queue.session.dead is None:  # its dead-letter queue was deleted
            kept.pop("RedrivePolicy", None)
        changes = {**notes, "attributes": kept}
        if changes != {each: queue.session.notes.get(each) for each in changes}:
            await self.change(queue, **changes)

    async def create(self, name: str, notes: dict[str, Any]) -> LocalQueue:
        now_seconds = self.now_seconds()
        settings = Settings(
            dead_on_receive=True,
            redelivery="original",
            deduplicate_by_group=by_group(notes, now_seconds),
            fair=not name.endswith(FIFO_SUFFIX),
        )
        link = await self._dead_letters(name, notes["attributes"])
        session = self._store.session(plain_name(name), settings, namespace=namespace_of(name))
        stamped = {**notes, "created": now_seconds, "modified": now_seconds}
        self._store.note(session, stamped)
        self._link(session, link)
        await self._adopt(name)
        return self.get(name)

    async def change(self, queue: BrokerQueue, *, take_over: bool = False, **changes: Any) -> None:
        assert isinstance(queue, LocalQueue)
        session, notes = queue.session, self._changed(queue.session.notes, changes)
        if "attributes" in changes:
            link = await self._dead_letters(queue.name, changes["attributes"])
            if take_over and link is not None and not session.queue.settings.dead_on_receive:
                with self._store.lock:
                    session.configure(dead_on_receive=True)
            self._store.note(session, notes)
            self._scopes[queue.name] = notes.get(SCOPE_BEFORE, (None, 0))[1]
            self.settle_scopes(self.now_seconds())
            self._link(session, link, take_over=take_over)
        else:
            self._store.note(session, notes)
        queue.read(session.notes)
        self._watch(queue)

    async def drop(self, queue: BrokerQueue) -> None:
        sources_of = await self.sources_of(queue)
        self._store.drop(queue.name)
        self._known.pop(queue.name, None)
        for sources in self._orphans.values():
            sources.discard(queue.name)
        if sources_of:
            self._orphans[queue.name] = set(sources_of)
        self._dropped_at.pop(queue.name, None)
        self._dropped_at[queue.name] = self._store.clock.now()
        self._forget_dropped()

    async def dropped_recently(self, name: str) -> bool:
        self._forget_dropped()
        return name in self._dropped_at

    def _forget_dropped(self) -> None:
        """Forget names that may be used again; they are in the order of their deletion."""
        latest = self._store.clock.now() - self._broker.config.recreate_after_seconds * SECOND_NS
        while self._dropped_at and next(iter(self._dropped_at.values())) <= latest:
            del self._dropped_at[next(iter(self._dropped_at))]

    async def sources_of(self, queue: BrokerQueue) -> list[str]:
        assert isinstance(queue, LocalQueue)
        return sorted(source.name for source in queue.session.queue.sources)

    # -- dead letters ------------------------------------------------------------------------

    def _link(
        self,
        session: QueueSession,
        link: tuple[BrokerQueue, int] | None,
        *,
        take_over: bool = False,
    ) -> None:
        """Give a queue this dead-letter queue and maxReceiveCount, or none."""
        if link is not None:
            target, most = link
            self._store.set_dead_letters(
                session, self._store.sessions[target.name], most, chain=True
            )
        elif session.dead is not None and (take_over or session.queue.settings.dead_on_receive):
            self._store.keep_dead_letters(session)

    def settle_scopes(self, now_seconds: int) -> None:
        """Apply each new DeduplicationScope that is due."""
        for name in [name for name, at in self._scopes.items() if at <= now_seconds]:
            del self._scopes[name]
            session = self._store.sessions.get(name)
            if session is None:
                continue
            wanted = by_group(session.notes, now_seconds)
            if session.queue.settings.deduplicate_by_group != wanted:
                with self._store.lock:
                    session.configure(deduplicate_by_group=wanted)

    async def _adopt(self, name: str) -> None:
        """Link queues whose policy names this new queue."""
        for source in sorted(self._orphans.pop(name, ())):
            queue = self.find_now(source)
            if queue is not None and queue.session.dead is None:
                try:
                    self._link(queue.session, await self._dead_letters(queue.name, queue.given))
                except SqsError:  # not allowed to use it
                    continue
