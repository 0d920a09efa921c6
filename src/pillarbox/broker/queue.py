"""A queue as the SQS actions use it, whatever store it is in.

`BrokerQueue` has a queue's attributes, and coroutines that operate on its messages. Those of a
queue in this process (`local_queue`) never wait, except for a long poll; those of a queue in a
shared store (`shared_queue`) make a round trip.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from pillarbox.broker import policies
from pillarbox.broker.attributes import (
    DEFAULTS,
    allow_policy,
    redrive_policy,
    with_defaults,
    with_scope,
)
from pillarbox.broker.errors import SqsError, invalid_value, no_access, no_such_queue
from pillarbox.broker.queue_names import FIFO_SUFFIX, namespace_of, owner_and_name
from pillarbox.broker.sigv4 import region_of
from pillarbox.core.limits import SECOND_NS
from pillarbox.core.queue import NEVER, Extra, Lease
from pillarbox.mailbox.protocol import Stats

if TYPE_CHECKING:
    from pillarbox.broker.config import DeclaredQueue
    from pillarbox.broker.server import Broker
    from pillarbox.broker.sqs_request import SqsRequest


class Draft(Struct, eq=False, gc=False):
    """A validated message that has not been sent yet."""

    body: bytes
    size: int
    delay: int
    priority: int
    attributes: dict[str, str] | None
    extra: Extra | None
    checksums: dict[str, str]


class Accepted(Struct, eq=False, gc=False):
    """A message that was sent, as reported to its sender."""

    message_id: str
    sequence: int  # of a FIFO queue


class Delivery(Struct, eq=False, gc=False):
    """One delivery of a message to a consumer."""

    message_id: str
    handle: str
    sequence: int
    lease: Lease
    body: bytes


class BrokerQueue(ABC):
    """A queue's attributes, parsed from its notes, and its operations."""

    fair = False  # on a standard queue, whether groups are tenants that get fair shares

    def __init__(self, name: str, notes: dict[str, Any]) -> None:
        self.name = name
        self.fifo = name.endswith(FIFO_SUFFIX)
        self.read(notes)

    def read(self, notes: dict[str, Any]) -> None:
        """Parse the notes."""
        self.given: dict[str, str] = notes.get("attributes", {})
        self.tags: dict[str, str] = notes.get("tags", {})
        self.created: int = notes.get("created", 0)
        self.modified: int = notes.get("modified", 0)
        self.priority: int = notes.get("priority", 0)
        known = self.attributes()
        self.visibility_ns = int(known["VisibilityTimeout"]) * SECOND_NS
        self.delay_ns = int(known["DelaySeconds"]) * SECOND_NS
        self.wait_ns = int(known["ReceiveMessageWaitTimeSeconds"]) * SECOND_NS
        self.retention_ns = retention_ns(notes)
        self.bytes_max = int(known["MaximumMessageSize"])
        self.content_based = known.get("ContentBasedDeduplication", "").lower() == "true"

    def attributes(self) -> dict[str, str]:
        """Every settable attribute, with defaults for those that were not given."""
        return with_defaults(self.given, fifo=self.fifo)

    @property
    def dead_letters(self) -> tuple[str, int] | None:
        """The dead-letter queue, and the maximum number of deliveries; None without one."""
        return None

    @property
    def epoch_ns(self) -> int:
        """The offset from message times to Unix time."""
        return 0

    async def send_one(self, draft: Draft) -> Accepted:
        (accepted,) = await self.send((draft,))
        assert isinstance(accepted, Accepted), "an error about a single message is raised"
        return accepted

    @abstractmethod
    async def send(self, drafts: Sequence[Draft]) -> Sequence[Accepted | SqsError]:
        """Send messages, and return the outcome of each; raise if nothing was sent."""

    @abstractmethod
    async def receive(
        self, request: SqsRequest, count: int, timeout_ns: int, wait_ns: int, attempt: str | None
    ) -> Sequence[Delivery]:
        """Receive messages, waiting up to `wait_ns` for the first.

        Sets `request.unsent`, which returns them if the client disconnects before the response.
        """

    async def delete_one(self, handle: str | None) -> None:
        (error,) = await self.delete((handle,))
        if error is not None:
            raise error

    @abstractmethod
    async def delete(self, handles: Sequence[str | None]) -> Sequence[SqsError | None]:
        """Delete messages by receipt handle; return an error or None for each."""

    @abstractmethod
    async def change_visibility(self, handle: str | None, seconds: int) -> None:
        """Let the lease expire so many seconds from now.

        On a standard queue, any handle that the message ever had is valid while it exists.
        """

    @abstractmethod
    async def purge(self, interval_seconds: int) -> None:
        """Delete all messages; raise if that was done less than `interval_seconds` ago."""

    @abstractmethod
    async def waiting(self, count: int) -> list[tuple[str, str | None]]:
        """Return the first ready messages: store ids, and the source queues of dead letters."""

    @abstractmethod
    async def redrive(self, ids: Mapping[str, Sequence[str]], to: str | None) -> int:
        """Move those messages that are still ready, and return how many that were.

        `ids` are grouped by target queue: `to`, or else the source queue of each message.
        """

    @abstractmethod
    async def stats(self) -> Stats: ...


def retention_ns(notes: Mapping[str, Any]) -> int:
    """Return how long a queue with these notes keeps its messages.

    A queue that a mailbox created keeps them, unless the SQS API changes that.
    """
    period = notes.get("attributes", {}).get("MessageRetentionPeriod")
    if period is None and notes.get("keeps", "attributes" not in notes):
        return NEVER
    return int(period or DEFAULTS["MessageRetentionPeriod"]) * SECOND_NS


class Queues(ABC):
    """All queues that a broker serves, by their names in the store."""

    def __init__(self, broker: Broker) -> None:
        self._broker, self._names = broker, broker.names
        self.now_seconds = broker.now_seconds

    @abstractmethod
    async def start(self) -> None:
        """Prepare for requests."""

    @abstractmethod
    async def declare(self, declared: Mapping[str, DeclaredQueue]) -> None:
        """Create or update the queues of the configuration."""

    async def by_url(
        self, request: SqsRequest, url: str | None, *, fresh: bool = False
    ) -> BrokerQueue:
        """Return the queue with this URL, ignoring its host; a bare name is accepted too.

        Unless `fresh`, its attributes may be cached; operations on messages detect a stale cache
        and reload. Raise if the queue belongs to another account and its policy does not allow
        this request.
        """
        owner, name = owner_and_name(url)
        if owner in ("", request.principal.account):
            return await self.by_name(request.namespace + name, fresh=fresh)
        namespace = self._names.namespace(region_of(request.http), owner)
        try:
            queue = await self.by_name(namespace + name, fresh=fresh)
        except SqsError:
            raise no_access() from None
        self._check_policy(request, queue)
        return queue

    def _check_policy(self, request: SqsRequest, queue: BrokerQueue) -> None:
        """Raise unless the queue's policy lets another account do this."""
        if self._broker.access.open_to_all:
            return
        principal, action, arn = request.principal, request.action, self._names.arn(queue.name)
        who = queue.given.get("Policy"), principal.account, principal.name
        if policies.allows(*who, action, arn):
            return
        if action != "GetQueueUrl" and policies.allows_anything(*who, arn):
            raise principal.denied(action, arn)
        raise no_access()

    async def by_name(self, name: str, *, fresh: bool = False) -> BrokerQueue:
        """Return the queue with this name in the store; raise if there is none."""
        found = await self.find(name)
        if found is None:
            raise no_such_queue()
        return found

    @abstractmethod
    async def find(self, name: str) -> BrokerQueue | None: ...

    @abstractmethod
    async def names(self) -> Iterable[str]: ...

    @abstractmethod
    async def create(self, name: str, notes: dict[str, Any]) -> BrokerQueue:
        """Create a queue with the semantics of SQS."""

    @abstractmethod
    async def open(self, name: str) -> None:
        """Create the queue with the broker's own dead-letter policy, unless it exists."""

    @abstractmethod
    async def ensure(self, name: str) -> None:
        """Create the queue without a dead-letter policy, unless it exists."""

    @abstractmethod
    async def pause(self, name: str, *, paused: bool) -> None: ...

    @abstractmethod
    async def change(self, queue: BrokerQueue, *, take_over: bool = False, **changes: Any) -> None:
        """Change the attributes or tags of a queue.

        With `take_over`, replace a dead-letter policy that a mailbox set.
        """

    @abstractmethod
    async def drop(self, queue: BrokerQueue) -> None: ...

    @abstractmethod
    async def dropped_recently(self, name: str) -> bool: ...

    @abstractmethod
    async def sources_of(self, queue: BrokerQueue) -> Sequence[str]:
        """Return the queues that use this one as their dead-letter queue."""

    def _changed(self, old: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
        """Return the notes of a queue after a change."""
        now_seconds = self.now_seconds()
        notes = {"created": now_seconds, **old, **changes}
        if "attributes" not in changes:
            return notes
        notes.setdefault("keeps", "attributes" not in old)
        notes["modified"] = now_seconds
        return with_scope(notes, old, now_seconds)

    async def _dead_letters(
        self, name: str, attributes: Mapping[str, str]
    ) -> tuple[BrokerQueue, int] | None:
        """Return the dead-letter queue and maxReceiveCount for these attributes.

        Raise if SQS would refuse them. As in SQS, a queue may name itself: the policy is stored
        and shown, but has no effect.
        """
        value = attributes.get("RedrivePolicy")
        if not value:
            return None
        policy = redrive_policy(value)
        if policy.deadLetterTargetArn.endswith(FIFO_SUFFIX) != name.endswith(FIFO_SUFFIX):
            reason = "Dead-letter queue must be same type of queue as the source.."  # sic
            raise invalid_value("RedrivePolicy", value, reason)
        target_name = self._names.by_arn(policy.deadLetterTargetArn, namespace_of(name))
        target = await self.find(target_name) if target_name is not None else None
        if target is None:
            raise invalid_value("RedrivePolicy", value, "Dead letter target does not exist.")
        if target.name == name:
            return None
        if not _allows(target, self._names.arn(name)):
            reason = "Queue does not have permission to use the dead-letter queue."
            raise invalid_value("RedrivePolicy", value, reason)
        if await self._leads_to(target, name):
            reason = "Dead-letter queues must not form a cycle."
            raise invalid_value("RedrivePolicy", value, reason)
        return target, policy.maxReceiveCount

    async def _leads_to(self, queue: BrokerQueue, name: str) -> bool:
        """Whether a chain of dead-letter queues leads from a queue to another."""
        following: BrokerQueue | None = queue
        passed = {queue.name}
        while following is not None and following.dead_letters is not None:
            dead, _ = following.dead_letters
            if dead == name:
                return True
            following = None if dead in passed else await self.find(dead)
            passed.add(dead)
        return False


def _allows(target: BrokerQueue, source_arn: str) -> bool:
    """Whether the target's RedriveAllowPolicy admits this source queue."""
    value = target.given.get("RedriveAllowPolicy")
    if not value:
        return True
    policy = allow_policy(value)
    if policy.redrivePermission == "byQueue":
        return source_arn in (policy.sourceQueueArns or ())
    return policy.redrivePermission == "allowAll"
