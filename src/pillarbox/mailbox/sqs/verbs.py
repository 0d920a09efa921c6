"""The verbs of a typed mailbox on SQS, each written once, as steps for whoever runs them.

Everything that can be checked is checked before SQS is asked: a wrong call changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Generic, NoReturn, TypedDict, TypeVar
from uuid import uuid4

from pillarbox.clock import Clock, SystemClock
from pillarbox.codec import Codec, codec_for
from pillarbox.core import limits
from pillarbox.core.errors import InvalidParameterError, MailboxClosedError, SerializationError
from pillarbox.logger import logger
from pillarbox.mailbox import sqs_form
from pillarbox.mailbox.answers import TEXT, dropped, encoded, is_reply_queue, reads_json
from pillarbox.mailbox.message import Delivered, Details, Undecodable
from pillarbox.mailbox.protocol import DeadLetterPolicy, Stats
from pillarbox.mailbox.sqs import receiving, wire
from pillarbox.mailbox.sqs.errors import UnsupportedOperationError
from pillarbox.mailbox.sqs.place import Place, find_place
from pillarbox.mailbox.sqs.queue import SqsQueue
from pillarbox.mailbox.sqs.receiving import Delivery
from pillarbox.mailbox.sqs.redriving import move_all, move_chosen
from pillarbox.mailbox.sqs.sending import send_many, send_one
from pillarbox.mailbox.sqs.steps import Interrupted, Verb

T = TypeVar("T")

DELAY_SECONDS_MAX = 900
WAIT_SECONDS_MAX = 20


class SQSOptions(TypedDict, total=False):
    """How a mailbox on SQS may be opened."""

    dead_letters: DeadLetterPolicy | None
    create: bool
    region: str | None
    endpoint: str | None
    session: Any
    redelivery: str
    clock: Clock | None


class Verbs(Generic[T]):
    """What a mailbox can do, its type and its clock. `kind` is the class of its messages."""

    def __init__(self, queue: SqsQueue, codec: Codec[T], clock: Clock, kind: Any) -> None:
        self.queue = queue
        self.codec = codec
        self.clock = clock
        self.closed = False
        self._kind = kind

    def beside(self, queue: SqsQueue) -> Verbs[T]:
        """The same for another queue."""
        return Verbs(queue, self.codec, self.clock, self._kind)

    # Sending.

    def send(
        self,
        body: T,
        *,
        delay_seconds: float,
        priority: int,
        attributes: Mapping[str, str] | None,
        reply_to: str | None,
        group: str | None,
        deduplication_id: str | None,
    ) -> Verb[str]:
        self._refuse_if_closed()
        data = self.codec.encode(body)
        limits.body_bytes(data, wire.MESSAGE_BYTES_MAX)
        beside = wire.Beside(attributes, self._own(priority, reply_to))
        options = self._options(delay_seconds, group, deduplication_id)
        entry, _ = beside.entry(data)
        return (yield from send_one(self.queue, {**entry, **options()}))

    def send_many(
        self,
        bodies: Iterable[T],
        *,
        delay_seconds: float,
        priority: int,
        attributes: Mapping[str, str] | None,
        reply_to: str | None,
        group: str | None,
    ) -> Verb[list[str]]:
        self._refuse_if_closed()
        data = [self.codec.encode(body) for body in bodies]
        limits.body_bytes(max(data, key=len, default=b""), wire.MESSAGE_BYTES_MAX)
        beside = wire.Beside(attributes, self._own(priority, reply_to))
        options = self._options(delay_seconds, group, None)
        entries = []
        for each in data:
            entry, size = beside.entry(each)
            entries.append(({**entry, **options()}, size))
        return (yield from send_many(self.queue, entries))

    def reply(self, to: str | None, in_reply_to: str, body: Any) -> Verb[str]:
        """Send an answer; text is marked, so that a reader of JSON takes it as a str too."""
        if to is None:
            raise InvalidParameterError(
                "reply_to", to, "named by the sender of the message that is replied to"
            )
        place = find_place(to, "reply_to")
        answers = self.beside(SqsQueue(place))
        try:
            yield from answers.queue.find()
        except InvalidParameterError as error:
            if error.parameter != "name" or not is_reply_queue(place.name):
                raise
            return dropped(place.name, in_reply_to)
        data, is_text = encoded(body)
        own = {sqs_form.IN_REPLY_TO: in_reply_to}
        if is_text:
            own[sqs_form.FORM] = TEXT
        entry, _ = wire.Beside(None, own).entry(data)
        options = answers._options(0, None, None)
        return (yield from send_one(answers.queue, {**entry, **options()}))

    # Receiving and settling.

    def receive(
        self, owner: object, max_messages: int, visibility_timeout: float, wait_time_seconds: float
    ) -> Verb[list[Any]]:
        self._refuse_if_closed()
        count = limits.whole("max_messages", max_messages, 1, limits.MESSAGES_MAX)
        lease = self._lease(visibility_timeout)
        wait = _whole_seconds("wait_time_seconds", wait_time_seconds, WAIT_SECONDS_MAX)
        until = self.clock.now() + wait * limits.SECOND_NS
        messages: list[Any] = []
        while len(messages) < count:
            asked = min(count - len(messages), wire.BATCH_MESSAGES_MAX)
            try:
                found = yield from receiving.take(self.queue, self.clock, asked, lease, wait)
            except Interrupted:
                break
            messages += self._decoded(found, owner)
            if not found or (messages and len(found) < asked):
                break
            # Bodies that don't decode were received in vain: the wait goes on for one that does.
            left = 0 if messages else until - self.clock.now()
            wait = max(0, left // limits.SECOND_NS)
        return messages

    def acknowledge(self, deliveries: Iterable[Delivery]) -> Verb[list[bool]]:
        return receiving.acknowledge(self.queue, self.clock, list(deliveries))

    def nack(self, deliveries: Iterable[Delivery], visibility_timeout: float) -> Verb[list[bool]]:
        seconds = self._lease(visibility_timeout)
        return receiving.give_back(self.queue, self.clock, list(deliveries), seconds)

    def extend(self, deliveries: Iterable[Delivery], timeout: float) -> Verb[list[bool]]:
        seconds = self._lease(timeout, "timeout")
        return receiving.extend(self.queue, self.clock, list(deliveries), seconds)

    def reject(self, delivery: Delivery, reason: str) -> Verb[list[bool]]:
        """SQS moves a message when its deliveries are used up, not before: it is given back."""
        limits.text("reason", reason)
        answer = yield from receiving.give_back(self.queue, self.clock, [delivery], 0)
        if answer[0]:
            logger.warning(
                "message rejected",
                mailbox=self.queue.name,
                message_id=delivery.id,
                reason=reason,
            )
        return answer

    def deliveries(self, messages: Iterable[Any]) -> list[Delivery]:
        """What was delivered as these messages; refused if one is not of this queue."""
        found = []
        for message in messages:
            own = isinstance(message, Delivered) and isinstance(message._delivery, Delivery)
            if not own or message._mailbox._verbs.queue.url != self.queue.url:
                raise InvalidParameterError(
                    "messages", message, f"messages received from mailbox {self.queue.name!r}"
                )
            found.append(message._delivery)
        return found

    # The queue as a whole.

    def purge(self) -> Verb[int]:
        self._refuse_if_closed()
        stats = yield from self.queue.stats()
        yield from self.queue.ask("purge_queue")
        return stats.total

    def stats(self) -> Verb[Stats]:
        return self.queue.stats()

    def redrive(
        self,
        owner: object,
        ids: Iterable[str] | None,
        where: Callable[[Any], bool] | None,
        to: str | None,
    ) -> Verb[int]:
        self._refuse_if_closed()
        target = None if to is None else self._other(to)
        if isinstance(ids, str):
            raise InvalidParameterError("ids", ids, "several message ids, not one str")
        if ids is None and where is None:
            return (yield from move_all(self.queue, self.clock, target))
        wanted = None if ids is None else {limits.text("ids", each, 0) for each in ids}

        def chosen(delivery: Delivery) -> bool:
            if wanted is not None and delivery.id not in wanted:
                return False
            return where is None or where(self._seen(delivery, owner))

        return (yield from move_chosen(self.queue, self.clock, chosen, target))

    def refuse_to_peek(self) -> NoReturn:
        raise UnsupportedOperationError(
            f"SQS can't show the messages of queue {self.queue.name!r} without receiving them: "
            "receive them, and nack those that you only wanted to see"
        )

    def refuse_to_delete(self) -> NoReturn:
        raise UnsupportedOperationError(
            f"SQS can't delete messages of queue {self.queue.name!r} by their ids: "
            "receive them, and acknowledge those that shall go"
        )

    def details(self, delivery: Delivery) -> Details:
        return wire.details(delivery.message)

    # How the verbs above check and convert.

    def _own(self, priority: int, reply_to: str | None) -> dict[str, str]:
        own = {}
        if limits.priority(priority):
            own[sqs_form.PRIORITY] = str(priority)
        if reply_to is not None:
            own[sqs_form.REPLY_TO] = limits.text("reply_to", reply_to)
        return own

    def _options(
        self, delay_seconds: float, group: str | None, deduplication_id: str | None
    ) -> Callable[[], dict[str, Any]]:
        """What a message of this queue says beside its attributes; made anew for each."""
        delay = _whole_seconds("delay_seconds", delay_seconds, DELAY_SECONDS_MAX)
        if group is not None:
            limits.token("group", group)
        if deduplication_id is not None:
            limits.token("deduplication_id", deduplication_id)
        if not self.queue.fifo:
            standard = "None on a standard queue of SQS: its name would end in .fifo"
            if group is not None:
                raise InvalidParameterError("group", group, standard)
            if deduplication_id is not None:
                raise InvalidParameterError("deduplication_id", deduplication_id, standard)
            return lambda: {"DelaySeconds": delay} if delay else {}
        if delay:
            allowed = "0 on a FIFO queue of SQS: only the queue as a whole can have a delay"
            raise InvalidParameterError("delay_seconds", delay_seconds, allowed)
        return lambda: {  # an id of its own, so that a call that is tried again sends it once
            "MessageGroupId": group or sqs_form.ALONE + uuid4().hex,
            "MessageDeduplicationId": deduplication_id or uuid4().hex,
        }

    def _lease(self, value: float, parameter: str = "visibility_timeout") -> int:
        return _whole_seconds(parameter, value, limits.VISIBILITY_SECONDS_MAX)

    def _decoded(self, deliveries: list[Delivery], owner: object) -> list[Any]:
        messages = []
        for delivery in deliveries:
            try:
                body = self._body(delivery)
            except SerializationError as error:  # it stays leased, and comes again or dies
                logger.error(
                    "message body does not decode",
                    mailbox=self.queue.name,
                    message_id=delivery.id,
                    error=str(error),
                )
            else:
                messages.append(self._kind(body, delivery.count, delivery, owner))
        return messages

    def _seen(self, delivery: Delivery, owner: object) -> Any:
        body: T | Undecodable
        try:
            body = self._body(delivery)
        except SerializationError as error:
            body = Undecodable(delivery.message["Body"].encode(), str(error))
        return self._kind(body, delivery.count, delivery, owner)

    def _body(self, delivery: Delivery) -> T:
        as_json = reads_json(self.codec)
        return self.codec.decode(wire.body_bytes(delivery.message, as_json=as_json))

    def _other(self, to: str) -> Place:
        place = find_place(to, "to")
        if place.name == self.queue.name:
            raise InvalidParameterError("to", to, "the name of another mailbox")
        return place

    def _refuse_if_closed(self) -> None:
        if self.closed:
            raise MailboxClosedError(
                f"mailbox {self.queue.name!r} was closed: open it again to send or receive"
            )


def verbs_for(name: str, body_type: Any, options: SQSOptions, kind: Any) -> Verbs[Any]:
    """The verbs of a queue that was named in any way; SQS was not asked yet."""
    for option in options.keys() - SQSOptions.__annotations__.keys():
        allowed = f"one of {', '.join(SQSOptions.__annotations__)}"
        raise InvalidParameterError("option", option, allowed)
    limits.one_of("redelivery", options.get("redelivery", "tail"), ("tail",))
    place = find_place(name)
    policy = options.get("dead_letters")
    queue = SqsQueue(place, create=options.get("create", False), policy=policy)
    return Verbs(queue, codec_for(body_type), options.get("clock") or SystemClock(), kind)


def _whole_seconds(parameter: str, value: float, most: int) -> int:
    """SQS counts whole seconds: a fraction is rounded up."""
    return -(-limits.seconds(parameter, value, most) // limits.SECOND_NS)
