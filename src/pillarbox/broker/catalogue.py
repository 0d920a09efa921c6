"""The queues of a broker as SQS's users know them: by name and URL, with attributes and tags.

What SQS knows about a queue is kept as notes in the store, beside the queue itself, and read
into a `LocalQueue` once. A queue that was not made through SQS's API has no notes: it gets
SQS's defaults, and the broker's own dead-letter policy.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import msgspec

from pillarbox.broker.attributes import checked, redrive_policy
from pillarbox.broker.errors import SqsError, missing, no_such_queue
from pillarbox.broker.local_queue import LocalQueue
from pillarbox.broker.queue import FIFO_SUFFIX
from pillarbox.broker.redrive import check_target
from pillarbox.core.errors import InvalidParameterError
from pillarbox.core.limits import SECOND_NS, queue_name
from pillarbox.core.queue import Settings
from pillarbox.mailbox.queue_session import QueueSession
from pillarbox.mailbox.store import Store

if TYPE_CHECKING:
    from pillarbox.broker.config import Config, DeclaredQueue

_URLS_MAX = 10_000
_REGION = re.compile(r"[a-z0-9-]{1,40}\Z")


class Catalogue:
    """All queues of a store."""

    def __init__(self, store: Store, config: Config, watch: Callable[[LocalQueue], None]) -> None:
        self._store = store
        self._config = config
        self._watch = watch  # told of each queue whose retention is new
        self._orphans: dict[str, set[str]] = {}  # by a dead-letter queue that is away: its sources
        self._known: dict[str, LocalQueue] = {}
        self._by_url: dict[str, LocalQueue] = {}  # what was asked for lately
        self._namespaces: dict[tuple[str, str], str] = {}  # by region and account
        self._dropped_at: dict[str, int] = {}

    def __iter__(self) -> Iterator[LocalQueue]:
        return iter([self.get(name) for name in sorted(self._store.sessions)])

    def find(self, name: str) -> LocalQueue | None:
        session = self._store.sessions.get(name)
        if session is None:
            return None
        known = self._known.get(name)
        if known is None or known.session is not session:
            known = self._known[name] = LocalQueue(session)
            self._watch(known)
        return known

    def get(self, name: str) -> LocalQueue:
        found = self.find(name)
        if found is None:
            raise no_such_queue()
        return found

    def dead_letters_of(self, name: str) -> str | None:
        """The dead-letter queue that `open` gives a new queue of this name; None for none."""
        stem = name.removesuffix(FIFO_SUFFIX)
        if not self._config.max_deliveries or stem.endswith("_dlq"):
            return None
        return f"{stem[:75]}_dlq{FIFO_SUFFIX if name != stem else ''}"

    def namespace(self, region: str, account: str) -> str:
        """What the store's names of these queues begin with; nothing for the broker's own."""
        known = self._namespaces.get((region, account))
        if known is None:
            own = (self._config.region, self._config.account)
            named = region if _REGION.match(region) else own[0]  # it may not be signed
            known = "" if (named, account) == own else f"{named}:{account}:"
            if len(self._namespaces) >= _URLS_MAX:
                self._namespaces.clear()
            self._namespaces[region, account] = known
        return known

    def by_url(self, url: str | None, namespace: str, account: str) -> LocalQueue:
        """By its URL, whatever its host: what counts is account and name. A bare name will do."""
        known = self._by_url.get(f"{namespace}{url}")
        if known is not None and self._store.sessions.get(known.name) is known.session:
            return known
        url = of_account(url, account)
        if len(self._by_url) >= _URLS_MAX:
            self._by_url.clear()
        found = self._by_url[namespace + url] = self.get(namespace + name_in(url))
        return found

    def by_arn(self, arn: str, namespace: str) -> LocalQueue | None:
        """None for one that is not here: in this region and account."""
        name = arn.rpartition(":")[2]
        return self.find(namespace + name) if self.arn(namespace + name) == arn else None

    def arn(self, name: str) -> str:
        where = "" if ":" in name else f"{self._config.region}:{self._config.account}:"
        return f"arn:aws:sqs:{where}{name}"

    def open(self, name: str) -> QueueSession:
        """The session of a queue for a client that is no SQS client; made if it is not there."""
        session = self._store.sessions.get(name)
        if session is not None:
            return session
        session = self._store.session(queue_name(name))
        grave = self.dead_letters_of(name)
        if grave is not None:
            target = self._store.session(grave)
            if target.dead is None:
                self._store.set_dead_letters(session, target, self._config.max_deliveries)
        return session

    def resume(self) -> None:
        """Read what the store knows of its queues, once, before anybody asks."""
        for queue in self:
            value = queue.given.get("RedrivePolicy")
            if value and queue.session.dead is None:
                namespace = queue.name.removesuffix(plain_name(queue.name))
                target = plain_name(redrive_policy(value).deadLetterTargetArn)
                self._orphans.setdefault(namespace + target, set()).add(queue.name)

    def declare(self, declared: Mapping[str, DeclaredQueue], now_seconds: int) -> None:
        """Make the queues that a configuration names, or change them to what it says."""
        policies: dict[str, str] = {}
        for name, wanted in declared.items():
            policy = wanted.attributes.get("RedrivePolicy")
            if policy is not None:
                with told_of(name):
                    given = checked({"RedrivePolicy": text_of(policy)}, fifo=False)
                policies[name] = given["RedrivePolicy"]
                target = redrive_policy(policies[name]).deadLetterTargetArn.rpartition(":")[2]
                self._store.session(name, Settings(dead_on_receive=True))
                if target in declared:  # it gets none of its own
                    self._store.session(target)
        for name, wanted in declared.items():
            with told_of(name):
                self._declare(name, wanted, now_seconds)
        for name, value in policies.items():  # once all of them are there
            queue = self.get(name)
            if queue.given.get("RedrivePolicy") != value or queue.session.dead is None:
                given = {**queue.given, "RedrivePolicy": value}
                with told_of(name):
                    self.change(queue, now_seconds, attributes=given)

    def _declare(self, name: str, wanted: DeclaredQueue, now_seconds: int) -> None:
        given = {key: text_of(value) for key, value in wanted.attributes.items()}
        if name.endswith(FIFO_SUFFIX):
            given["FifoQueue"] = "true"
        given = checked(given, fifo=name.endswith(FIFO_SUFFIX))
        given.pop("RedrivePolicy", None)
        queue = LocalQueue(self.open(name))
        kept = {**queue.given, **given}
        if queue.session.dead is None:  # where its dead letters went is not there any more
            kept.pop("RedrivePolicy", None)
        changes: dict[str, Any] = {
            "attributes": kept,
            "tags": wanted.tags,
            "priority": wanted.priority,
            "keeps": False,
        }
        if changes != {each: queue.session.notes.get(each) for each in changes}:
            self.change(queue, now_seconds, **changes)

    def create(self, name: str, notes: dict[str, Any], now_seconds: int) -> LocalQueue:
        """A new queue, made as SQS makes it; the name is that in the store."""
        settings = Settings(
            dead_on_receive=True,
            redelivery="original",
            deduplicate_by_group=_by_group(notes),
            fair=not name.endswith(FIFO_SUFFIX),
        )
        links = self._policy(name, notes["attributes"])
        namespace = name.removesuffix(plain_name(name))
        session = self._store.session(plain_name(name), settings, namespace=namespace)
        stamped = {**notes, "created": now_seconds, "modified": now_seconds}
        self._store.note(session, stamped)
        self._link(session, links)
        self._adopt(name)
        return self.get(name)

    def change(
        self, queue: LocalQueue, now_seconds: int, *, take_over: bool = False, **changes: Any
    ) -> None:
        """Other attributes or tags for a queue.

        `take_over`: what becomes of its dead letters is for SQS's API to say from now on.
        """
        notes = {"created": now_seconds, **queue.session.notes, **changes}
        if "attributes" in changes:
            notes.setdefault("keeps", "attributes" not in queue.session.notes)
            link = self._policy(queue.name, changes["attributes"])
            if take_over and not queue.session.queue.settings.dead_on_receive:
                with self._store.lock:
                    queue.session.configure(dead_on_receive=True)
            notes["modified"] = now_seconds
            self._store.note(queue.session, notes)
            self._scope(queue.session, _by_group(notes))
            self._link(queue.session, link)
        else:
            self._store.note(queue.session, notes)
        queue.read(queue.session.notes)
        self._watch(queue)

    def drop(self, queue: LocalQueue) -> None:
        sources_of = self.sources_of(queue)
        self._store.drop(queue.name)
        self._known.pop(queue.name, None)
        for sources in self._orphans.values():
            sources.discard(queue.name)
        if sources_of:
            self._orphans[queue.name] = set(sources_of)
        self._dropped_at.pop(queue.name, None)
        self._dropped_at[queue.name] = self._store.clock.now()
        self._forget_dropped()

    def dropped_recently(self, name: str) -> bool:
        self._forget_dropped()
        return name in self._dropped_at

    def _forget_dropped(self) -> None:
        """Names are kept in the order of their end; those whose time is over come first."""
        latest = self._store.clock.now() - self._config.recreate_after_seconds * SECOND_NS
        while self._dropped_at and next(iter(self._dropped_at.values())) <= latest:
            del self._dropped_at[next(iter(self._dropped_at))]

    def sources_of(self, queue: LocalQueue) -> list[str]:
        return sorted(source.name for source in queue.session.queue.sources)

    # -- dead letters ------------------------------------------------------------------------

    def _policy(self, name: str, attributes: Mapping[str, str]) -> tuple[QueueSession, int] | None:
        """Where the dead letters of a queue with these attributes go; raises if they may not."""
        value = attributes.get("RedrivePolicy")
        if not value:
            return None
        policy = redrive_policy(value)
        named = self.by_arn(policy.deadLetterTargetArn, name.removesuffix(plain_name(name)))
        own = self.find(name)
        is_target = own is not None and bool(own.session.queue.sources)
        target = check_target(value, name, self.arn(name), named, is_target=is_target)
        if target.name == name:
            return None  # as SQS does: it is kept and shown, and nothing dies of it
        return self._store.sessions[target.name], policy.maxReceiveCount

    def _link(self, session: QueueSession, link: tuple[QueueSession, int] | None) -> None:
        if link is not None:
            self._store.set_dead_letters(session, *link)
        elif session.dead is not None and session.queue.settings.dead_on_receive:
            self._store.keep_dead_letters(session)

    def _scope(self, session: QueueSession, by_group: bool) -> None:
        if session.queue.settings.deduplicate_by_group != by_group:
            with self._store.lock:
                session.configure(deduplicate_by_group=by_group)

    def _adopt(self, name: str) -> None:
        """Queues whose policy names a queue that was away until now."""
        for source in sorted(self._orphans.pop(name, ())):
            queue = self.find(source)
            if queue is not None and queue.session.dead is None:
                try:
                    self._link(queue.session, self._policy(queue.name, queue.given))
                except SqsError:  # it may not be used
                    continue


def plain_name(name: str) -> str:
    """A queue's name without its region and account, from its name in the store or its ARN."""
    return name.rpartition(":")[2]


def of_account(url: str | None, account: str) -> str:
    """The URL of a queue, if it is one of this account."""
    if not url:
        raise missing("QueueUrl")
    rest, slash, _ = url.rpartition("/")
    owner = rest.rpartition("/")[2] if slash else ""
    if owner.isdecimal() and len(owner) == 12 and owner != account:
        raise no_such_queue()
    return url


def name_in(url: str) -> str:
    """The name of the queue that a URL is of."""
    return url.rpartition("/")[2]


@contextmanager
def told_of(name: str) -> Iterator[None]:
    """Turn what SQS would refuse into a fault of the configuration."""
    try:
        yield
    except SqsError as error:
        wrong = f"declared as SQS has it ({error.message})"
        raise InvalidParameterError("queues", name, wrong) from error


def text_of(value: str | int | bool | dict[str, Any]) -> str:
    """A value of a configuration, as SQS writes it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return msgspec.json.encode(value).decode() if isinstance(value, dict) else str(value)


def _by_group(notes: Mapping[str, Any]) -> bool:
    found: bool = notes["attributes"].get("DeduplicationScope") == "messageGroup"
    return found
