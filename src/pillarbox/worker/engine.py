"""A worker: receives from one mailbox and runs a handler on each message, many at a time.

It receives no more than it can start, extends leases while handlers run, and acknowledges a
message when its handler has returned and the reply, if requested, has been sent. `stop` drains:
running handlers finish, and messages not yet started are released without counting a delivery.
"""

from __future__ import annotations

import asyncio
import inspect
import queue
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from msgspec import structs

from pillarbox import tracing
from pillarbox.clock import Clock, SystemClock
from pillarbox.core import limits
from pillarbox.core.errors import InvalidParameterError, SerializationError
from pillarbox.logger import logger
from pillarbox.mailbox.answers import Rejection
from pillarbox.mailbox.protocol import Mailbox
from pillarbox.mailbox.runner import Verb
from pillarbox.mailbox.url import MailboxOptions, open_mailbox
from pillarbox.worker.acknowledger import Acknowledger
from pillarbox.worker.dispatcher import Dispatcher
from pillarbox.worker.handler import Handler
from pillarbox.worker.job import (
    Job,
    LeaseLost,
    Outcome,
    ReceiveFailed,
    Reject,
    Release,
    TaskEnded,
    TaskStarted,
    Verdict,
    WorkerStarted,
    WorkerStopped,
)
from pillarbox.worker.lease_keeper import LeaseKeeper, LeaseTerms
from pillarbox.worker.pools import Pool, TaskPool, ThreadPool
from pillarbox.worker.receiver import Receiver
from pillarbox.worker.retry import RetryPolicy, describe, reply_not_sent
from pillarbox.worker.stats import WorkerStats

T = TypeVar("T")

CONCURRENCY_MAX = 10_000

Respond = Callable[[Job[Any], Any], object]


class Worker(Generic[T]):
    """Runs `handler` on the messages of a mailbox, given as an object or by URL.

    Examples:
        >>> from pillarbox import InMemoryMailbox
        >>> teas = InMemoryMailbox("teas", str)
        >>> _ = teas.send_many(["assam", "keemun"])
        >>> Worker(teas, print).run(max_receives=2)
        assam
        keemun
        >>> teas.approximate_count()
        0
    """

    def __init__(
        self,
        mailbox: Mailbox[T] | str,
        handler: Callable[..., Any],
        *,
        concurrency: int = 1,
        retry: RetryPolicy | None = None,
        visibility_timeout: float = limits.VISIBILITY_SECONDS_DEFAULT,
        time_limit: float | None = None,
        wait_time_seconds: float = 20,
        respond: Respond | None = None,
        dispatcher: Dispatcher | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.handler = Handler(handler)
        self.retry = retry or RetryPolicy()
        self.concurrency = limits.whole("concurrency", concurrency, 1, CONCURRENCY_MAX)
        _check_times(visibility_timeout, time_limit)
        self.dispatcher = dispatcher or Dispatcher()
        self._owns = isinstance(mailbox, str)
        self.mailbox: Mailbox[Any] = open_for(mailbox, self.handler, self.retry)
        self._clock: Clock = clock or SystemClock()
        self._respond = respond or _reply
        self._keeper = LeaseKeeper(self._clock, self._lost)
        self._receiver = Receiver(
            LeaseTerms(self.mailbox, visibility_timeout, time_limit),
            self._keeper,
            self._clock,
            wait=wait_time_seconds,
            failed=lambda error: self.dispatcher.publish(ReceiveFailed(self.mailbox.name, error)),
        )
        # Wakes `run`. SimpleQueue.put is reentrant, so a signal handler may call it, even one that
        # interrupted `run` itself.
        self._wakeups: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._pool: Pool = (
            TaskPool(concurrency, self._receiver, self._work, self._wake)
            if self.handler.is_async
            else ThreadPool(concurrency, self._receiver, self._work, self._wake)
        )
        self._stats = WorkerStats(self.mailbox.name)
        self._acknowledger: Acknowledger | None = None

    def stats(self) -> WorkerStats:
        """Return the stats of this worker."""
        return structs.replace(
            self._stats, connected=self._receiver.connected, in_progress=self._pool.busy
        )

    def run(self, *, max_receives: int | None = None) -> None:
        """Work until `stop`, or for `max_receives` receives. A worker runs once."""
        if self._acknowledger is not None:
            raise RuntimeError("a worker can run only once; create another")
        acknowledger = Acknowledger(
            self.mailbox, self._keeper, self._clock, self._stats, self._late
        )
        self._acknowledger = acknowledger
        if tracing.active() and not self.dispatcher.traced:
            from pillarbox.worker.tracing import trace  # noqa: PLC0415 - needs OpenTelemetry

            trace(self.dispatcher)
        self.dispatcher.publish(WorkerStarted(self.mailbox.name, self.concurrency))
        try:
            if not self._receiver.stopping:
                self._pool.start(max_receives)
                self._wakeups.get()
        finally:
            self._receiver.stop()
            self._pool.stop()
            while not self._pool.drained:
                self._wakeups.get()
            self._receiver.finish()
            acknowledger.close()
            self._keeper.close()
            self._pool.shut_down()
            if self._owns:
                self.mailbox.close()  # wakes a waiting receive
                self._pool.join()
            self.dispatcher.publish(WorkerStopped(self.mailbox.name))
        if self._pool.error is not None:
            raise self._pool.error

    def stop(self) -> None:
        """Stop receiving; `run` returns when running handlers have finished.

        May be called from any thread and from signal handlers.
        """
        self._receiver.stop()
        self._wake()

    def _wake(self) -> None:
        self._wakeups.put(None)

    def abort(self) -> int:
        """Release the messages of running handlers without waiting; return their number.

        For a process that is about to exit: the handlers are not stopped.
        """
        self._receiver.stop()
        self._pool.stop()
        if self._acknowledger is not None:
            self._acknowledger.close(timeout=1)
        running = [held for held in self._keeper.held() if not held.settled]
        self._keeper.close()
        return sum(self.mailbox.release_many([held.message for held in running]))

    def _work(self, job: Job[Any]) -> Verb[None]:
        """Handle one message: call the handler, send the reply, settle the message."""
        if self.dispatcher.wants(TaskStarted):
            self.dispatcher.publish(TaskStarted(job))
        result, verdict = None, None
        try:
            result = yield self.handler.call(job)
        except BaseException as error:  # noqa: BLE001 - the retry policy decides
            verdict = self._failed(job, error)
        job.ended_at = self._clock.now()
        if not self.handler.is_async:
            verdict = self._reply(job, result, verdict)
        elif self._respond is not _reply or job.message.reply_to is not None:
            try:  # sending a reply blocks, so it must not run in the event loop
                verdict = yield asyncio.to_thread(self._reply, job, result, verdict)
            except asyncio.CancelledError as error:  # the lease was lost meanwhile
                verdict = self._failed(job, error)
        self._end(job, verdict)

    def _reply(self, job: Job[Any], result: Any, verdict: Verdict | None) -> Verdict | None:
        """Send the result, or the reason for a rejection, to a client that waits for it."""
        try:
            if verdict is None:
                self._respond(job, result)
            elif isinstance(verdict, Reject):
                _reply(job, Rejection(verdict.reason))
        except Exception as error:  # noqa: BLE001 - the retry policy decides
            if verdict is None:
                return self._reply_failed(job, error)
            logger.warning(
                "reason not sent to the client", message_id=job.id, error=describe(error)
            )
        return verdict

    def _end(self, job: Job[Any], verdict: Verdict | None) -> None:
        assert self._acknowledger is not None
        if self.dispatcher.wants(TaskEnded):
            outcome: Outcome = "succeeded" if verdict is None else verdict.outcome
            error = verdict.__cause__ if verdict is not None else None
            self.dispatcher.publish(TaskEnded(job, outcome, error, job.seconds))
        self._acknowledger.put(job, verdict, may_wait=not self.handler.is_async)

    def _failed(self, job: Job[Any], error: BaseException) -> Verdict:
        if isinstance(error, asyncio.CancelledError) and job.lost is not None:
            if self._clock.now() - job.started_at < job.terms.limit_ns:
                return Release()
            # The lease may still be valid. The delivery must count, or it is repeated for ever.
            error = TimeoutError(job.lost)
        verdict = self.retry.verdict(error, job.message.delivery_count)
        if verdict is error:
            return verdict
        verdict.__cause__ = error
        logger.warning(
            "handler failed",
            mailbox=self.mailbox.name,
            handler=self.handler.name,
            message_id=job.id,
            delivery_count=job.message.delivery_count,
            error=describe(error),
            then=verdict.outcome,
            seconds=getattr(verdict, "after", None),
            exc_info=error,
        )
        return verdict

    def _reply_failed(self, job: Job[Any], error: Exception) -> Verdict:
        if isinstance(error, SerializationError | InvalidParameterError):
            return self._failed(job, error)  # a retry of the reply would fail too
        verdict = reply_not_sent(error, job.message.delivery_count)
        verdict.__cause__ = error
        logger.warning(
            "reply not sent; the message will be handled again",
            mailbox=self.mailbox.name,
            message_id=job.id,
            seconds=verdict.after,
            error=describe(error),
        )
        return verdict

    def _lost(self, job: Any) -> None:
        self.dispatcher.publish(LeaseLost(job, job.lost))

    def _late(self, job: Job[Any]) -> None:
        """Report that the lease expired before the message was settled."""
        if job.lost is None:
            job.lost = "it expired before the message was settled"
            logger.warning(
                "settled too late: the message will be delivered again",
                mailbox=self.mailbox.name,
                message_id=job.id,
            )
            self._lost(job)


def _check_times(visibility_timeout: float, time_limit: float | None) -> None:
    timeout_max = limits.VISIBILITY_SECONDS_MAX
    if not limits.seconds("visibility_timeout", visibility_timeout, timeout_max):
        raise InvalidParameterError("visibility_timeout", visibility_timeout, "more than 0 seconds")
    if time_limit is not None and not time_limit > 0:
        raise InvalidParameterError("time_limit", time_limit, "more than 0 seconds")


def _reply(job: Job[Any], result: Any) -> None:
    """Send the return value of the handler if the sender asked for a reply."""
    if job.message.reply_to is not None:
        job.message.reply(result)


def open_for(mailbox: Mailbox[Any] | str | None, handler: Handler, retry: RetryPolicy) -> Any:
    """Open the mailbox of a handler with its body type and retries; only check an object."""
    policy = retry.dead_letters
    if isinstance(mailbox, str):
        options: MailboxOptions = {} if policy is None else {"dead_letters": policy}
        return open_mailbox(mailbox, handler.body_type, **options)
    if mailbox is None or inspect.iscoroutinefunction(getattr(mailbox, "receive", None)):
        raise InvalidParameterError(
            "mailbox", mailbox, "a Mailbox or a URL (for coroutine handlers, too)"
        )
    if policy is not None and mailbox.dead_letters is None:
        raise InvalidParameterError(
            "retries",
            retry.retries,
            f"None for {mailbox.name!r}, which has no dead-letter queue; or open the mailbox with "
            f"dead_letters=DeadLetterPolicy({policy.max_deliveries})",
        )
    return mailbox
