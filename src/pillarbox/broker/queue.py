"""A queue as the SQS actions use it, whatever store it is in.

`BrokerQueue` has the attributes of a queue and the operations on its messages, to be awaited. A
queue in this process (`local_queue`) answers at once: its coroutines end without waiting, but for
a long poll. A queue of a shared store (`shared`) answers after a round trip.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec import Struct

from pillarbox.broker import policies
from pillarbox.broker.attributes import allow_policy, redrive_policy, with_defaults
from pillarbox.broker.errors import SqsError, invalid_value, no_access
from pillarbox.broker.queue_names import FIFO_SUFFIX, namespace_of, owner_and_name
from pillarbox.broker.sigv4 import region_of
from pillarbox.core.limits import SECOND_NS
from pillarbox.core.queue import NEVER, Extra, Lease

if TYPE_CHECKING:
    from pillarbox.broker.config import DeclaredQueue
    from pillarbox.broker.server import Broker
    from pillarbox.broker.sqs_request import SqsRequest


class Draft(Struct, eq=False, gc=False):
    """A message that was checked, and is not sent yet."""

    body: bytes
    size: int
    delay: int
    priority: int
    attributes: dict[str, str] | None
    extra: Extra | None
    checksums: dict[str, str]


class Accepted(Struct, eq=False, gc=False):
    """What the sender of a message is told about it."""

    message_id: str
    sequence: int  # of a FIFO queue


class Delivery(Struct, eq=False, gc=False):
    """One delivery of a message, to be shown to its receiver."""

    message_id: str
    handle: str
    sequence: int
    lease: Lease
    body: bytes


class Counts(NamedTuple):
    """How many messages a queue has in each state."""

    ready: int
    scheduled: int
    in_flight: int


class QueueAttributes:
    """The attributes of a queue, read from what is noted of it."""

    def __init__(self, name: str, notes: dict[str, Any]) -> None:
        self.name = name
        self.fifo = name.endswith(FIFO_SUFFIX)
        self.read(notes)

    def read(self, notes: dict[str, Any]) -> None:
        """Take over what the notes say."""
        self.given: dict[str, str] = notes.get("attributes", {})
        self.tags: dict[str, str] = notes.get("tags", {})
        self.created: int = notes.get("created", 0)
        self.modified: int = notes.get("modified", 0)
        self.priority: int = notes.get("priority", 0)
        known = self.attributes()
        self.visibility_ns = int(known["VisibilityTimeout"]) * SECOND_NS
        self.delay_ns = int(known["DelaySeconds"]) * SECOND_NS
        self.wait_ns = int(known["ReceiveMessageWaitTimeSeconds"]) * SECOND_NS
        # A queue that a mailbox made promises to keep messages, until SQS's API says otherwise.
        promised = notes.get("keeps", "attributes" not in notes)
        forever = promised and "MessageRetentionPeriod" not in self.given
        kept = int(known["MessageRetentionPeriod"]) * SECOND_NS
        self.retention_ns = NEVER if forever else kept
        self.bytes_max = int(known["MaximumMessageSize"])
        self.content_based = known.get("ContentBasedDeduplication", "").lower() == "true"

    def attributes(self) -> dict[str, str]:
        """All that can be set, with the defaults of what was not."""
        return with_defaults(self.given, fifo=self.fifo)


class BrokerQueue(QueueAttributes, ABC):
    """A queue with its attributes and its operations."""

    fair = False  # whether a group on a standard queue is a tenant, who gets a fair share

    @property
    def dead_letters(self) -> tuple[str, int] | None:
        """The dead-letter queue, and after how many deliveries a message goes there."""
        return None

    @property
    def epoch_ns(self) -> int:
        """What to add to the times of its messages for the time of day."""
        return 0

    @abstractmethod
    async def send_one(self, draft: Draft) -> Accepted: ...

    @abstractmethod
    async def send(self, drafts: Sequence[Draft]) -> Sequence[Accepted | SqsError]:
        """Send messages. What fails when nothing at all was done raises."""

    @abstractmethod
    async def receive(
        self, request: SqsRequest, count: int, timeout_ns: int, wait_ns: int, attempt: str | None
    ) -> Sequence[Delivery]:
        """What is ready, or becomes so in time.

        `request.unsent` gives it back, should the client hang up before it is answered.
        """

    @abstractmethod
    async def delete_one(self, handle: str | None) -> None: ...

    @abstractmethod
    async def delete(self, handles: Sequence[str | None]) -> Sequence[SqsError | None]:
        """Delete the messages of these receipt handles; for each why not, if it was not."""

    @abstractmethod
    async def change_visibility(self, handle: str | None, seconds: int) -> None:
        """Let the lease end so many seconds from now; at once for 0.

        On a standard queue any handle that the message ever had will do while it exists.
        """

    @abstractmethod
    async def purge(self, interval_seconds: int) -> None:
        """Delete all messages, unless that was done less than `interval_seconds` ago."""

    @abstractmethod
    async def waiting(self, count: int) -> list[tuple[str, str | None]]:
        """The first messages that are ready: ids of the store, and where dead letters came from."""

    @abstractmethod
    async def redrive(self, ids: Mapping[str, Sequence[str]], to: str | None) -> int:
        """Move those of them that are still ready; how many.

        `ids` are by the queue that they go to, which is `to`, or the one that each came from.
        """

    @abstractmethod
    async def counts(self) -> Counts: ...


class Queues(ABC):
    """All queues that a broker serves, by their names in the store."""

    def __init__(self, broker: Broker) -> None:
        self._broker, self._names = broker, broker.names
        self.now_seconds = broker.now_seconds

    @abstractmethod
    async def start(self) -> None:
        """Be ready for requests."""

    @abstractmethod
    async def declare(self, declared: Mapping[str, DeclaredQueue]) -> None:
        """Create the queues that a configuration names, or change them to what it says."""

    async def by_url(
        self, request: SqsRequest, url: str | None, *, fresh: bool = False
    ) -> BrokerQueue:
        """The queue with this URL, whatever its host. A bare name will do.

        What is known of it may be old unless it is to be `fresh`: then every operation on its
        messages notices that, and reads it anew. Raises unless it is one of the account that
        asks, or its policy lets that account use it.
        """
        owner, name = owner_and_name(url)
        if owner in ("", request.principal.account):
            return await self.by_name(request.namespace + name, fresh=fresh)
        namespace = self._names.namespace(region_of(request.http), owner)
        try:
            queue = await self.by_name(namespace + name, fresh=fresh)
        except SqsError:
            raise no_access() from None
        if not self._may_use(request, queue):
            raise no_access()
        return queue

    def _may_use(self, request: SqsRequest, queue: BrokerQueue) -> bool:
        """Whether another account than the queue's own may do what it asks for."""
        principal = request.principal
        if self._broker.access.open_to_all:
            return True
        policy, arn = queue.given.get("Policy"), self._names.arn(queue.name)
        return policies.allows(policy, principal.account, principal.name, request.action, arn)

    @abstractmethod
    async def by_name(self, name: str, *, fresh: bool = False) -> BrokerQueue:
        """The queue with this name in the store; an error if there is none."""

    @abstractmethod
    async def find(self, name: str) -> BrokerQueue | None: ...

    @abstractmethod
    async def names(self) -> Iterable[str]: ...

    @abstractmethod
    async def create(self, name: str, notes: dict[str, Any]) -> BrokerQueue:
        """A new queue, made as SQS makes it."""

    @abstractmethod
    async def open(self, name: str) -> None:
        """A queue with the broker's own dead-letter policy, if there is none of this name."""

    @abstractmethod
    async def ensure(self, name: str, *, fifo: bool) -> None:
        """A queue without a dead-letter policy, if there is none of this name."""

    @abstractmethod
    async def pause(self, name: str, *, paused: bool) -> None: ...

    @abstractmethod
    async def change(self, queue: BrokerQueue, *, take_over: bool = False, **changes: Any) -> None:
        """Other attributes or tags for a queue.

        `take_over`: a dead-letter policy that a mailbox gave it ends.
        """

    @abstractmethod
    async def drop(self, queue: BrokerQueue) -> None: ...

    @abstractmethod
    async def dropped_recently(self, name: str) -> bool: ...

    @abstractmethod
    async def sources_of(self, queue: BrokerQueue) -> Sequence[str]:
        """The queues whose dead letters go to this one."""

    async def _dead_letters(
        self, name: str, attributes: Mapping[str, str]
    ) -> tuple[BrokerQueue, int] | None:
        """The dead-letter queue of a queue with these attributes, and its maxReceiveCount.

        Raises if SQS would refuse it. A queue that names itself has none: as SQS does, that is
        kept and shown, and nothing dies of it.
        """
        value = attributes.get("RedrivePolicy")
        if not value:
            return None
        policy = redrive_policy(value)
        if policy.deadLetterTargetArn.endswith(FIFO_SUFFIX) != name.endswith(FIFO_SUFFIX):
            reason = "Dead-letter queue must be same type of queue as the source.."  # as AWS has it
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
        """Whether dead letters of a queue may come to another one, by way of others."""
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
    """Whether a queue may send its dead letters there."""
    value = target.given.get("RedriveAllowPolicy")
    if not value:
        return True
    policy = allow_policy(value)
    if policy.redrivePermission == "byQueue":
        return source_arn in (policy.sourceQueueArns or ())
    return policy.redrivePermission == "allowAll"
