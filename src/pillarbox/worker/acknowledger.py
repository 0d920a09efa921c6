"""Acknowledges, retries, rejects and releases handled messages, in batches.

No message waits for a batch to fill. A single one is settled immediately, in the handler's thread
if the server is fast: a thread switch would cost more. Messages that arrive meanwhile are settled
together by a dedicated thread. A lease is extended until the server has confirmed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from pillarbox.clock import Clock
from pillarbox.core.errors import MailboxError
from pillarbox.core.limits import SECOND_NS
from pillarbox.logger import logger
from pillarbox.mailbox.protocol import Mailbox
from pillarbox.mailbox.waiters import closed_gate, open_gate
from pillarbox.worker.job import Job, Reject, Release, Retry, Verdict
from pillarbox.worker.lease_keeper import LeaseKeeper
from pillarbox.worker.stats import WorkerStats

_PAUSE_NS = SECOND_NS // 20  # after a failed try, then doubled
_PAUSE_NS_MAX = 2 * SECOND_NS
_FAST_NS = SECOND_NS // 500  # a server that answers within this needs no extra thread

Settled = tuple[Job[Any], Verdict | None]  # None: acknowledge


class Acknowledger:
    """Carries out verdicts; calls `late` for each message whose lease had expired."""

    def __init__(
        self,
        mailbox: Mailbox[Any],
        keeper: LeaseKeeper,
        clock: Clock,
        stats: WorkerStats,
        late: Callable[[Job[Any]], object],
    ) -> None:
        self._mailbox = mailbox
        self._keeper = keeper
        self._clock = clock
        self._stats = stats  # changed by one thread at a time: the one that settles
        self._late = late
        self._lock = threading.Lock()
        self._pending: list[Settled] = []
        self._awake = False  # a thread is settling and will see new entries
        self._fast = True
        self._closing = False
        self._gate = closed_gate()
        self._thread = threading.Thread(
            target=self._run, name="pillarbox-acknowledger", daemon=True
        )
        self._thread.start()

    def put(self, job: Job[Any], verdict: Verdict | None, *, may_wait: bool) -> None:
        """Settle a message as soon as possible; block only if the server is fast."""
        job.settled = True
        with self._lock:
            self._pending.append((job, verdict))
            if self._awake:
                return
            self._awake = True
        if may_wait and self._fast:
            self._settle_here()
        else:
            open_gate(self._gate)

    def _settle_here(self) -> None:
        """Settle pending messages once; leave retries and new messages to the thread."""
        with self._lock:
            batch, self._pending = self._pending, []
        left = self._settle(batch)
        with self._lock:
            self._pending = left + self._pending
            if not self._pending and not self._closing:
                self._awake = False
                return
        open_gate(self._gate)

    def close(self, timeout: float | None = None) -> None:
        """Settle all messages that can still be settled, then return."""
        with self._lock:
            self._closing = True
            self._awake = True
        open_gate(self._gate)
        self._thread.join(timeout)

    def _run(self) -> None:
        pause = _PAUSE_NS
        self._gate.acquire()
        while True:
            with self._lock:
                batch, self._pending = self._pending, []
                closing = self._closing  # nothing is put after `close`
                self._awake = bool(batch) or closing
            if batch:
                left = self._settle(batch)
                pause = self._pause(left, pause) if left else _PAUSE_NS
            elif closing:
                return
            else:
                self._gate.acquire()

    def _settle(self, batch: list[Settled]) -> list[Settled]:
        """Settle a batch; return the messages to retry."""
        start = self._clock.now()
        done = [job for job, verdict in batch if verdict is None]
        released = [job for job, verdict in batch if isinstance(verdict, Release)]
        left = self._settle_jobs(done, self._mailbox.acknowledge_many, None)
        left += self._settle_jobs(released, self._mailbox.release_many, Release())
        for job, verdict in batch if len(done) + len(released) < len(batch) else ():
            if isinstance(verdict, Retry):
                nack = partial(self._mailbox.nack_many, visibility_timeout=verdict.after)
                left += self._settle_jobs([job], nack, verdict)
            elif isinstance(verdict, Reject):
                left += self._settle_jobs([job], partial(_reject, verdict.reason), verdict)
        self._fast = self._clock.now() - start < _FAST_NS
        return left

    def _settle_jobs(
        self,
        jobs: list[Job[Any]],
        verb: Callable[[Sequence[Any]], list[bool]],
        verdict: Verdict | None,
    ) -> list[Settled]:
        if not jobs:
            return []
        try:
            answers = verb([job.message for job in jobs])
        except MailboxError as error:
            return self._failed(jobs, verdict, error)
        except Exception:  # noqa: BLE001 - the thread must survive; the leases expire eventually
            logger.exception("messages not settled", mailbox=self._mailbox.name, count=len(jobs))
            self._keeper.drop(jobs)
            return []
        self._keeper.drop(jobs)
        outcome = "succeeded" if verdict is None else verdict.outcome
        failed = verdict is not None and verdict.__cause__ is not None
        for job in jobs:
            self._stats.count(outcome, job.seconds, failed=failed)
        if not all(answers):
            for job, answer in zip(jobs, answers, strict=True):
                if not answer:
                    self._late(job)
        return []

    def _failed(
        self, jobs: list[Job[Any]], verdict: Verdict | None, error: MailboxError
    ) -> list[Settled]:
        """Retry while the lease lasts and the error may be temporary."""
        now = self._clock.now()
        retried = [job for job in jobs if error.retryable and job.lost is None and job.until > now]
        kept = set(map(id, retried))
        given_up = [job for job in jobs if id(job) not in kept]
        logger.warning(
            "messages not settled",
            mailbox=self._mailbox.name,
            error=str(error),
            retrying=len(retried),
            given_up=len(given_up),
        )
        self._keeper.drop(given_up)
        return [(job, verdict) for job in retried]

    def _pause(self, left: list[Settled], pause: int) -> int:
        with self._lock:
            self._pending = left + self._pending
        self._clock.wait(closed_gate(), self._clock.now() + pause)
        return min(2 * pause, _PAUSE_NS_MAX)


def _reject(reason: str, messages: Sequence[Any]) -> list[bool]:
    return [message.reject(reason) for message in messages]
