"""A worker: receives from one mailbox and runs a handler on each message, many at a time.

It claims only what can start, keeps the leases of what runs, and acknowledges when the handler
has returned (and its answer, if one was asked for, has been sent). `stop` drains: what runs ends,
what was never started goes back uncounted. `stop` may be called from any thread.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from pillarbox.clock import Clock, SystemClock
from pillarbox.core import limits
from pillarbox.core.errors import InvalidParameterError, SerializationError
from pillarbox.logger import logger
from pillarbox.mailbox.protocol import Mailbox
from pillarbox.mailbox.url import open_mailbox
from pillarbox.worker.dispatcher import Dispatcher
from pillarbox.worker.events import (
    LeaseLost,
    ReceiveFailed,
    TaskEnded,
    TaskStarted,
    WorkerStarted,
    WorkerStopped,
)
from pillarbox.worker.handler import Handler
from pillarbox.worker.intake import Intake
from pillarbox.worker.job import Job, Outcome, Release, Verdict
from pillarbox.worker.lease_keeper import LeaseKeeper, Terms
from pillarbox.worker.retry import RetryPolicy, answer_not_sent, describe
from pillarbox.worker.settler import Settler
from pillarbox.worker.tasks import TaskCrew
from pillarbox.worker.threads import ThreadCrew

T = TypeVar("T")

CONCURRENCY_MAX = 10_000

Respond = Callable[[Job[Any], Any], object]


class Worker(Generic[T]):
    """Runs `handler` on the messages of a mailbox, given as itself or by its URL.

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
        self._intake = Intake(
            Terms(self.mailbox, visibility_timeout, time_limit),
            self._keeper,
            self._clock,
            wait=wait_time_seconds,
            failed=lambda error: self.dispatcher.publish(ReceiveFailed(self.mailbox.name, error)),
        )
        self._crew = (
            TaskCrew(concurrency, self._intake, self._work_in_task)
            if self.handler.is_async
            else ThreadCrew(concurrency, self._intake, self._work)
        )
        self._settler: Settler | None = None

    @property
    def connected(self) -> bool:
        """Whether the mailbox answered the last time it was asked."""
        return self._intake.connected

    @property
    def busy(self) -> int:
        """How many handlers run now."""
        return self._crew.busy

    @property
    def done(self) -> int:
        """How many messages were settled, whatever became of them."""
        return 0 if self._settler is None else self._settler.done

    @property
    def failed(self) -> int:
        """How many of them because their handler, or its answer, failed."""
        return 0 if self._settler is None else self._settler.failed

    def run(self, *, max_receives: int | None = None) -> None:
        """Work until `stop`, or until so many receives were done with. Once for each worker."""
        if self._settler is not None:
            raise RuntimeError("this worker has been run before: make another")
        settler = Settler(self.mailbox, self._keeper, self._clock, self._late)
        self._settler = settler
        self.dispatcher.publish(WorkerStarted(self.mailbox.name, self.concurrency))
        try:
            if not self._intake.stopping.is_set():
                self._crew.start(max_receives)
                self._crew.drained.wait()
        finally:
            self.stop()
            self._crew.drained.wait()
            settler.close()
            self._keeper.close()
            self._leave()
        if self._crew.error is not None:
            raise self._crew.error

    def stop(self) -> None:
        """Claim nothing more and let what runs end; `run` returns then. Also before `run`."""
        self._intake.stop()
        self._crew.stop()

    def abort(self) -> int:
        """Give back what runs, uncounted, without waiting for it; how many that were.

        For a process that is about to exit: the handlers are not stopped.
        """
        self.stop()
        if self._settler is not None:
            self._settler.close(timeout=1)
        running = [held for held in self._keeper.held() if not held.settled]
        self._keeper.close()
        return sum(self.mailbox.release_many([held.message for held in running]))

    def _leave(self) -> None:
        self._crew.leave()
        if self._owns:
            self.mailbox.close()  # wakes the receive that may be parked
            self._crew.join()
        self.dispatcher.publish(WorkerStopped(self.mailbox.name))

    def _work(self, job: Job[Any]) -> None:
        """One message in a thread: handle, respond, settle."""
        dispatcher = self.dispatcher
        if dispatcher.wants(TaskStarted):
            dispatcher.publish(TaskStarted(job))
        verdict: Verdict | None = None
        try:
            result = self.handler.call(job)
            try:
                self._respond(job, result)
            except Exception as error:  # noqa: BLE001 - as below
                verdict = self._unanswered(job, error)
        except BaseException as error:  # noqa: BLE001 - the policy decides what becomes of it
            verdict = self._failed(job, error)
        self._end(job, verdict)

    async def _work_in_task(self, job: Job[Any]) -> None:
        """One message in an asyncio task."""
        if self.dispatcher.wants(TaskStarted):
            self.dispatcher.publish(TaskStarted(job))
        verdict: Verdict | None = None
        try:
            result = await self.handler.call(job)
            try:
                # A reply waits for its mailbox, so it must not run in the event loop.
                if self._respond is not _reply or job.message.reply_to is not None:
                    await asyncio.to_thread(self._respond, job, result)
            except Exception as error:  # noqa: BLE001 - as below
                verdict = self._unanswered(job, error)
        except asyncio.CancelledError as error:
            verdict = Release() if job.lost is not None else self._failed(job, error)
        except BaseException as error:  # noqa: BLE001 - the policy decides what becomes of it
            verdict = self._failed(job, error)
        self._end(job, verdict)

    def _end(self, job: Job[Any], verdict: Verdict | None) -> None:
        assert self._settler is not None
        if self.dispatcher.wants(TaskEnded):
            outcome: Outcome = "acknowledged" if verdict is None else verdict.outcome
            error = verdict.__cause__ if verdict is not None else None
            self.dispatcher.publish(TaskEnded(job, outcome, error, job.seconds(self._clock.now())))
        self._settler.put(job, verdict, may_wait=not self.handler.is_async)

    def _failed(self, job: Job[Any], error: BaseException) -> Verdict:
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

    def _unanswered(self, job: Job[Any], error: Exception) -> Verdict:
        if isinstance(error, SerializationError | InvalidParameterError):
            return self._failed(job, error)  # it would fail the same way after any time
        verdict = answer_not_sent(error, job.message.delivery_count)
        verdict.__cause__ = error
        logger.warning(
            "answer not sent; the request is done again later",
            mailbox=self.mailbox.name,
            message_id=job.id,
            seconds=verdict.after,
            error=describe(error),
        )
        return verdict

    def _lost(self, job: Any) -> None:
        self.dispatcher.publish(LeaseLost(job, job.lost))

    def _late(self, job: Job[Any]) -> None:
        """Its lease was over before it could be settled."""
        if job.lost is None:
            job.lost = "it had run out before the message was settled"
            logger.warning(
                "settled too late: the message is delivered again",
                mailbox=self.mailbox.name,
                message_id=job.id,
            )
            self._lost(job)


def _check_times(visibility_timeout: float, time_limit: float | None) -> None:
    most = limits.VISIBILITY_SECONDS_MAX
    if not limits.seconds("visibility_timeout", visibility_timeout, most):
        raise InvalidParameterError("visibility_timeout", visibility_timeout, "more than 0 seconds")
    if time_limit is not None and not time_limit > 0:
        raise InvalidParameterError("time_limit", time_limit, "more than 0 seconds, or None")


def _reply(job: Job[Any], result: Any) -> None:
    """The answer is what the handler returned, if the sender asked for one."""
    if job.message.reply_to is not None:
        job.message.reply(result)


def open_for(mailbox: Mailbox[Any] | str | None, handler: Handler, retry: RetryPolicy) -> Any:
    """The mailbox of a handler: opened for its body type and its retries, or as it was given."""
    policy = retry.dead_letters
    if isinstance(mailbox, str):
        options = {} if policy is None else {"dead_letters": policy}
        return open_mailbox(mailbox, handler.body_type, **options)
    if mailbox is None or inspect.iscoroutinefunction(getattr(mailbox, "receive", None)):
        raise InvalidParameterError(
            "mailbox", mailbox, "a Mailbox or a URL (a coroutine handler takes one, too)"
        )
    if policy is not None and mailbox.dead_letters is None:
        raise InvalidParameterError(
            "retries",
            retry.retries,
            f"given for a mailbox with dead letters, and {mailbox.name!r} has none: open it with "
            f"dead_letters=DeadLetterPolicy({policy.max_deliveries}), or leave retries out",
        )
    return mailbox
