"""A mailbox on SQS, for threads: the verbs, run with boto3."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Generic, NoReturn, TypeVar, Unpack, overload

from pillarbox.closing import Closing
from pillarbox.core.errors import MailboxError
from pillarbox.mailbox.message import Message, Undecodable
from pillarbox.mailbox.protocol import SpecialForm, State, Stats
from pillarbox.mailbox.sqs.clients import Poll, is_inside, one_deeper, shared_client
from pillarbox.mailbox.sqs.errors import from_botocore
from pillarbox.mailbox.sqs.face import Face
from pillarbox.mailbox.sqs.receiving import Delivery
from pillarbox.mailbox.sqs.steps import Call, Interrupted, Step, Verb, run
from pillarbox.mailbox.sqs.verbs import SQSOptions, Verbs, verbs_for
from pillarbox.mutex import now_or_soon, reentrant_call

T = TypeVar("T")
R = TypeVar("R")


class SQSMailbox(Face[T], Closing, Generic[T]):
    """A mailbox on a queue of Amazon SQS, or of a server that speaks its protocol.

    `name` is the queue's name, ARN or URL. Options: `region`, `endpoint` (of a server that is not
    Amazon's), `session` (a `boto3.Session`), `create=True` to make a queue that is missing,
    `dead_letters` to set its redrive policy. Safe from any thread.
    """

    @overload
    def __init__(
        self: SQSMailbox[Any], name: str, body_type: SpecialForm, **options: Unpack[SQSOptions]
    ) -> None: ...
    @overload
    def __init__(self, name: str, body_type: type[T], **options: Unpack[SQSOptions]) -> None: ...
    @overload
    def __init__(self, name: str, **options: Unpack[SQSOptions]) -> None: ...
    def __init__(self, name: str, body_type: Any = Any, **options: Unpack[SQSOptions]) -> None:
        verbs = verbs_for(name, body_type, options, Message)
        place = verbs.queue.place
        region = options.get("region") or place.region
        endpoint = options.get("endpoint") or place.endpoint
        self._set_up(verbs, (options.get("session"), region, endpoint))
        self._run(verbs.queue.open())

    def _set_up(self, verbs: Verbs[T], where: tuple[Any, str | None, str | None]) -> None:
        self._verbs = verbs
        self._where = where
        self._lock = threading.RLock()  # a signal handler may receive, too
        self._polls: set[Poll] = set()
        self._closing = threading.Event()

    @property
    def dead_letters(self) -> SQSMailbox[T] | None:
        """The mailbox of this one's dead letters, if it has a redrive policy."""
        if self._verbs.queue.dead is None:
            return None
        other: SQSMailbox[T] = SQSMailbox.__new__(SQSMailbox)
        other._set_up(self._verbs.beside(self._verbs.queue.dead), self._where)
        return other

    def send(
        self,
        body: T,
        *,
        delay_seconds: float = 0,
        priority: int = 0,
        attributes: Mapping[str, str] | None = None,
        reply_to: str | None = None,
        group: str | None = None,
        deduplication_id: str | None = None,
    ) -> str:
        """Put a message in; its unique id. It can't be received before its delay is over."""
        return self._run(
            self._verbs.send(
                body,
                delay_seconds=delay_seconds,
                priority=priority,
                attributes=attributes,
                reply_to=reply_to,
                group=group,
                deduplication_id=deduplication_id,
            )
        )

    def send_many(
        self,
        bodies: Iterable[T],
        *,
        delay_seconds: float = 0,
        priority: int = 0,
        attributes: Mapping[str, str] | None = None,
        reply_to: str | None = None,
        group: str | None = None,
    ) -> list[str]:
        """Put all of them in, by batches of SQS; their ids, in order.

        All are checked before the first is sent. If SQS refuses some, `BatchError` says which.
        """
        return self._run(
            self._verbs.send_many(
                bodies,
                delay_seconds=delay_seconds,
                priority=priority,
                attributes=attributes,
                reply_to=reply_to,
                group=group,
            )
        )

    def receive(
        self,
        *,
        max_messages: int = 1,
        visibility_timeout: float = 30,
        wait_time_seconds: float = 0,
    ) -> Sequence[Message[T]]:
        """Lease up to `max_messages`; waits for the first one, never for a full batch."""
        return self._run(
            self._verbs.receive(self, max_messages, visibility_timeout, wait_time_seconds)
        )

    def acknowledge_many(self, messages: Iterable[Message[T]]) -> list[bool]:
        """Delete these; False for each whose delivery is over."""
        return self._run(self._verbs.acknowledge(self._verbs.deliveries(messages)))

    def nack_many(
        self, messages: Iterable[Message[T]], *, visibility_timeout: float = 0
    ) -> list[bool]:
        """Give these back to be redelivered, now or later."""
        return self._run(self._verbs.nack(self._verbs.deliveries(messages), visibility_timeout))

    def extend_visibility_many(self, messages: Iterable[Message[T]], timeout: float) -> list[bool]:
        """Let all these leases end `timeout` seconds from now."""
        return self._run(self._verbs.extend(self._verbs.deliveries(messages), timeout))

    def release_many(self, messages: Iterable[Message[T]]) -> list[bool]:
        """Give these back; SQS counts the delivery all the same."""
        return self.nack_many(messages)

    def purge(self) -> int:
        """Delete everything, at most once a minute; how many there were, roughly."""
        return self._run(self._verbs.purge())

    def approximate_count(self) -> int:
        """Ready + scheduled + in flight, roughly."""
        return self.stats().total

    def stats(self) -> Stats:
        """The count by state, roughly; SQS does not tell the age of the oldest."""
        return self._run(self._verbs.stats())

    def peek(
        self, max_messages: int = 10, *, state: State = "ready"
    ) -> Sequence[Message[T | Undecodable]]:
        """SQS can't: `UnsupportedOperationError`."""
        self._verbs.refuse_to_peek()

    def delete(self, ids: Iterable[str]) -> int:
        """SQS can't delete by id: `UnsupportedOperationError`."""
        self._verbs.refuse_to_delete()

    def redrive(
        self,
        ids: Iterable[str] | None = None,
        *,
        where: Callable[[Message[T | Undecodable]], bool] | None = None,
        to: str | None = None,
    ) -> int:
        """Send waiting dead letters back where they came from, or `to` another queue."""
        return self._run(self._verbs.redrive(self, ids, where, to))

    def close(self) -> None:
        """Wake every parked receive; nothing can be sent or received through it any more."""
        self._verbs.closed = True
        now_or_soon(self._hang_up)

    def _hang_up(self) -> None:
        if is_inside():
            raise reentrant_call()
        with self._lock:
            polls = list(self._polls)
        self._closing.set()
        for poll in polls:
            poll.hang_up()

    # What messages ask of the mailbox that delivered them.

    def _acknowledge(self, delivery: Delivery) -> bool:
        return self._run(self._verbs.acknowledge([delivery]))[0]

    def _nack(self, delivery: Delivery, visibility_timeout: float) -> bool:
        return self._run(self._verbs.nack([delivery], visibility_timeout))[0]

    def _extend(self, delivery: Delivery, timeout: float) -> bool:
        return self._run(self._verbs.extend([delivery], timeout))[0]

    def _release(self, delivery: Delivery) -> bool:
        return self._nack(delivery, 0)

    def _reject(self, delivery: Delivery, reason: str) -> bool:
        return self._run(self._verbs.reject(delivery, reason))[0]

    # What a client asks of the mailbox that it has for its answers.

    def _keep_for_answers(self) -> None:
        """A client lives; SQS need not be told."""

    def _end_with_client(self) -> None:
        """Delete the queue."""
        self._run(self._verbs.queue.ask("delete_queue"))

    def _reply(self, to: str | None, in_reply_to: str, body: Any) -> str:
        return self._run(self._verbs.reply(to, in_reply_to, body))

    # How the steps of a verb are run.

    def _run(self, verb: Verb[R]) -> R:
        return run(verb, self._do)

    def _do(self, step: Step) -> Any:
        return one_deeper(self._step, step)

    def _step(self, step: Step) -> Any:
        if not isinstance(step, Call):
            self._closing.wait(step.seconds)
            return None
        if not step.parked:
            return self._call(step)
        poll = Poll()
        with self._lock:
            self._polls.add(poll)
        try:
            if self._verbs.closed:
                raise Interrupted
            with poll:
                return self._call(step)
        except MailboxError:
            if poll.over:
                raise Interrupted from None
            raise
        finally:
            with self._lock:
                self._polls.discard(poll)

    def _call(self, step: Call) -> Any:
        try:
            return getattr(shared_client(*self._where), step.operation)(**step.params)
        except Exception as error:  # noqa: BLE001 - told apart there, and raised if unknown
            self._fail(error, step)

    def _fail(self, error: Exception, step: Call) -> NoReturn:
        raise from_botocore(error, step.operation, self.name) from error
