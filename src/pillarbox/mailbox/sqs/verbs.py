"""The verbs of a mailbox on SQS, written once as generators for sync and async.

Arguments are validated before SQS is called, so a wrong call changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, TypedDict, TypeVar
from uuid import uuid4

from pillarbox.clock import Clock, SystemClock
from pillarbox.codec import Codec, codec_for
from pillarbox.core import limits, sqs_limits
from pillarbox.core.errors import InvalidParameterError, SerializationError
from pillarbox.logger import logger
from pillarbox.mailbox import sqs_form
from pillarbox.mailbox.answers import REPLY_TO, TEXT, dropped, encoded, is_reply_queue
from pillarbox.mailbox.message import Details
from pillarbox.mailbox.options import check_options
from pillarbox.mailbox.protocol import DeadLetterPolicy, State, Stats
from pillarbox.mailbox.runner import Interrupted, Verb
from pillarbox.mailbox.sqs import receiving, wire
from pillarbox.mailbox.sqs.address import address_of
from pillarbox.mailbox.sqs.errors import UnsupportedOperationError
from pillarbox.mailbox.sqs.queue import SqsQueue
from pillarbox.mailbox.sqs.receiving import Delivery
from pillarbox.mailbox.sqs.redriving import move_all, move_chosen
from pillarbox.mailbox.verbs import Body, Outgoing, Verbs, Where

T = TypeVar("T")


class SQSOptions(TypedDict, total=False):
    """Options to open a mailbox on SQS."""

    dead_letters: DeadLetterPolicy | None
    create: bool
    region: str | None
    endpoint: str | None
    session: Any
    redelivery: str
    clock: Clock | None


class SQSVerbs(Verbs[T, Delivery], Generic[T]):
    """The verbs of a mailbox on SQS."""

    delay_seconds_max = sqs_limits.DELAY_SECONDS_MAX
    wait_seconds_max = sqs_limits.WAIT_SECONDS_MAX
    counts_attributes = False  # `_send` counts them as SQS does

    def __init__(self, queue: SqsQueue, codec: Codec[T], clock: Clock) -> None:
        super().__init__(queue.name, codec, sqs_limits.MESSAGE_BYTES_MAX)
        self.queue = queue
        self.clock = clock

    def beside(self, queue: SqsQueue) -> SQSVerbs[T]:
        """Return the verbs of another queue, with the same codec and clock."""
        return SQSVerbs(queue, self.codec, self.clock)

    @property
    def identity(self) -> object:
        return self.queue.url

    def open(self) -> Verb[None]:
        return self.queue.open()

    def dead_letters(self) -> SQSVerbs[T] | None:
        dead = self.queue.dead
        return None if dead is None or not self.queue.opened else self.beside(dead)

    # Sending.

    def _send(self, sent: Outgoing) -> Verb[list[str]]:
        own = {sqs_form.PRIORITY: str(sent.priority)} if sent.priority else {}
        users = sent.attributes or {}
        if REPLY_TO in users:
            own[sqs_form.REPLY_TO] = users.pop(REPLY_TO)
        attributes = wire.EntryAttributes(users, own)
        options = self._options(sent.delay, sent.group, sent.deduplication_id)
        entries = []
        for each in sent.bodies:
            entry, size = attributes.entry(each)
            entries.append(({**entry, **options()}, size))
        if len(entries) == 1:
            return [(yield from self.queue.send(entries[0][0]))]
        return (yield from self.queue.send_many(entries))

    def _reply(self, to: str, in_reply_to: str, body: Any) -> Verb[str]:
        """Send a reply; text is marked, so that a mailbox that reads JSON decodes it as a str."""
        address = address_of(to, "reply_to")
        answers = self.beside(SqsQueue(address))
        try:
            yield from answers.queue.find()
        except InvalidParameterError as error:
            if error.parameter != "name" or not is_reply_queue(address.name):
                raise
            return dropped(address.name, in_reply_to)
        data, is_text = encoded(body)
        own = {sqs_form.IN_REPLY_TO: in_reply_to}
        if is_text:
            own[sqs_form.FORM] = TEXT
        entry, _ = wire.EntryAttributes({}, own).entry(data)
        options = answers._options(0, None, None)
        return (yield from answers.queue.send({**entry, **options()}))

    # Receiving and settling.

    def _receive(self, mailbox: Any, count: int, timeout: int, wait: int) -> Verb[list[Any]]:
        lease, wait = _whole_seconds(timeout), _whole_seconds(wait)
        until = self.clock.now() + wait * limits.SECOND_NS
        messages: list[Any] = []
        while len(messages) < count:
            asked = min(count - len(messages), sqs_limits.BATCH_ENTRIES_MAX)
            try:
                found = yield from receiving.take(self.queue, self.clock, asked, lease, wait, self)
            except Interrupted:
                break
            numbers, bodies = [each.count for each in found], list(map(self._body, found))
            decoded, failed = self.decoded(mailbox, found, numbers, bodies)
            # It stays leased until it is redelivered or dead-lettered.
            for delivery, error in failed:
                self.log_undecodable(delivery.id, error)
            messages += decoded
            if not found or (messages and len(found) < asked):
                break
            # If no body decoded, keep waiting for one that does.
            left = 0 if messages else until - self.clock.now()
            wait = max(0, left // limits.SECOND_NS)
        return messages

    def acknowledge(self, deliveries: Sequence[Delivery]) -> Verb[list[bool]]:
        return receiving.settle(self.queue, self.clock, deliveries)

    def _nack(self, deliveries: Sequence[Delivery], delay: int) -> Verb[list[bool]]:
        return receiving.settle(self.queue, self.clock, deliveries, _whole_seconds(delay))

    def _extend(self, deliveries: Sequence[Delivery], timeout: int) -> Verb[list[bool]]:
        return receiving.extend(self.queue, self.clock, deliveries, _whole_seconds(timeout))

    def release(self, deliveries: Sequence[Delivery]) -> Verb[list[bool]]:
        """Return the messages; SQS counts the delivery anyway."""
        return self._nack(deliveries, 0)

    def _reject(self, deliveries: Sequence[Delivery], reason: str) -> Verb[list[bool]]:
        """Return the messages: SQS dead-letters only after the maximum number of receives."""
        answers = yield from self._nack(deliveries, 0)
        for delivery, answer in zip(deliveries, answers, strict=True):
            if answer:
                logger.warning(
                    "message rejected", mailbox=self.name, message_id=delivery.id, reason=reason
                )
        return answers

    # The queue as a whole.

    def _purge(self) -> Verb[int]:
        stats = yield from self.queue.stats()
        yield from self.queue.ask("purge_queue")
        return stats.total

    def stats(self) -> Verb[Stats]:
        return self.queue.stats()

    def _redrive(
        self, mailbox: Any, ids: list[str] | None, where: Where | None, to: str | None
    ) -> Verb[int]:
        target = None if to is None else address_of(to, "to")
        if ids is None and where is None:
            return (yield from move_all(self.queue, self.clock, target))
        wanted = None if ids is None else set(ids)

        def chosen(delivery: Delivery) -> bool:
            if wanted is not None and delivery.id not in wanted:
                return False
            if where is None:
                return True
            raw = delivery.message["Body"].encode()
            return where(self.peeked(mailbox, delivery, delivery.count, self._body(delivery), raw))

        return (yield from move_chosen(self.queue, self.clock, chosen, target))

    def _peek(self, mailbox: Any, count: int, state: State) -> Verb[list[Any]]:
        raise UnsupportedOperationError(
            f"SQS can't show the messages of queue {self.queue.name!r} without receiving them: "
            "receive them, and nack those that you only wanted to see"
        )

    def _delete(self, ids: list[str]) -> Verb[int]:
        raise UnsupportedOperationError(
            f"SQS can't delete messages of queue {self.queue.name!r} by their ids: "
            "receive them, and acknowledge those that you want to delete"
        )

    def keep_for_answers(self) -> Verb[None]:
        """Do nothing: SQS keeps idle queues."""
        yield from ()

    def delete_queue(self) -> Verb[None]:
        yield from self.queue.ask("delete_queue")

    def message_id(self, delivery: Delivery) -> str:
        return delivery.id

    def receipt_handle(self, delivery: Delivery) -> str:
        return delivery.handle

    def details(self, delivery: Delivery) -> Details:
        return wire.details(delivery.message)

    # Validation and conversion.

    def _options(
        self, delay: int, group: str | None, deduplication_id: str | None
    ) -> Callable[[], dict[str, Any]]:
        """Return a function that creates the SQS parameters of one message."""
        if not self.queue.fifo:
            standard = "None on a standard queue of SQS: its name would end in .fifo"
            if group is not None:
                raise InvalidParameterError("group", group, standard)
            if deduplication_id is not None:
                raise InvalidParameterError("deduplication_id", deduplication_id, standard)
            return lambda: {"DelaySeconds": _whole_seconds(delay)} if delay else {}
        if delay:
            allowed = "0 on a FIFO queue of SQS: only the queue as a whole can have a delay"
            raise InvalidParameterError("delay_seconds", delay / limits.SECOND_NS, allowed)
        return lambda: {  # a unique id, so that a retried call sends it once
            "MessageGroupId": group or sqs_form.ALONE + uuid4().hex,
            "MessageDeduplicationId": deduplication_id or uuid4().hex,
        }

    def _body(self, delivery: Delivery) -> Body:
        try:
            return wire.body_bytes(delivery.message, as_json=self.reads_json)
        except SerializationError as error:
            return error

    def queue_named(self, to: str, parameter: str) -> str:
        return address_of(to, parameter).name


def verbs_for(name: str, body_type: Any, options: SQSOptions) -> SQSVerbs[Any]:
    """Return the verbs of a queue given by any form of address; does not call SQS."""
    check_options(options, SQSOptions.__annotations__)
    limits.one_of("redelivery", options.get("redelivery", "tail"), ("tail",))
    address = address_of(name)
    policy = options.get("dead_letters")
    queue = SqsQueue(address, create=options.get("create", False), policy=policy)
    return SQSVerbs(queue, codec_for(body_type), options.get("clock") or SystemClock())


def _whole_seconds(nanoseconds: int) -> int:
    """Round up to whole seconds, the resolution of SQS."""
    return -(-nanoseconds // limits.SECOND_NS)
