"""Receives messages for a worker: only as many as can start, with leases kept from the start.

Messages that arrive after `stop` are released. A server that can't be reached is retried with
exponential backoff; any other error of the mailbox ends the worker.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

from pillarbox.clock import Clock
from pillarbox.core.errors import InvalidParameterError, MailboxClosedError, MailboxError
from pillarbox.core.limits import MESSAGES_MAX, SECOND_NS
from pillarbox.logger import logger
from pillarbox.mailbox.durable import DurableMailbox
from pillarbox.mailbox.message import Message
from pillarbox.mailbox.waiters import closed_gate, open_gate
from pillarbox.worker.job import Job
from pillarbox.worker.lease_keeper import LeaseKeeper, LeaseTerms

_COMMON_BATCH_MAX = 10  # the largest batch that every backend accepts
_PAUSE_NS = SECOND_NS // 10  # after a failed receive, then doubled
_PAUSE_NS_MAX = 10 * SECOND_NS
_GRACE_SECONDS = 2  # for a server to answer a receive when the worker stops


class Receiver:
    """Receives for a pool. One thread at a time calls `receive`, with the lock `claiming`."""

    def __init__(
        self,
        terms: LeaseTerms[Any],
        keeper: LeaseKeeper,
        clock: Clock,
        *,
        wait: float,
        failed: Callable[[MailboxError], object],
    ) -> None:
        self.stopping = False
        self.connected = False  # the last receive succeeded
        self._terms = terms
        self._mailbox = terms.mailbox
        self._keeper = keeper
        self._clock = clock
        self._wait = wait
        self._failed = failed
        self._batch_max = MESSAGES_MAX
        # Held from a receive until its messages are in the pool or released, but not while the
        # receive waits for a message, so that a stopping worker does not wait for it.
        self.claiming = threading.Lock()
        # A store in this process writes receives lazily. Confirm them first; otherwise the
        # deliveries of a message that crashes the process are never counted, and it is never
        # dead-lettered.
        self._confirms = (
            isinstance(self._mailbox, DurableMailbox) and self._mailbox.dead_letters is not None
        )
        self._pause = _PAUSE_NS
        self._gate = closed_gate()

    def stop(self) -> None:
        """Stop receiving. Takes no lock, so a signal handler may call it."""
        self.stopping = True
        open_gate(self._gate)

    def finish(self) -> None:
        """Wait, after `stop`, until a receive that may have claimed messages releases them."""
        if self.claiming.acquire(timeout=_GRACE_SECONDS):
            self.claiming.release()

    def _is_stopping(self) -> bool:
        return self.stopping

    def receive(self, free: int) -> list[Job[Any]]:
        """Return at most `free` jobs; none if the mailbox is empty or can't be reached."""
        if self._is_stopping():
            return []
        try:
            # The first receive does not wait, to find out quickly whether the server responds.
            messages = () if self.connected else self._receive(free, 0)
            self.connected = True
            messages = messages or self._await(free)
        except InvalidParameterError as error:
            if error.parameter != "max_messages" or self._batch_max == _COMMON_BATCH_MAX:
                raise
            self._batch_max = _COMMON_BATCH_MAX
            return []
        except MailboxError as error:
            self._pause_after(error)
            return []
        self._pause = _PAUSE_NS
        if not messages:
            return []
        now = self._keeper.now()
        jobs = [Job(each, self._terms, now, self._keeper, self._is_stopping) for each in messages]
        if self.stopping:
            self.release(jobs)
            return []
        if self._confirms:
            self._mailbox.extend_visibility_many(messages, self._terms.timeout)
        self._keeper.hold(jobs)
        return jobs

    def _await(self, free: int) -> Sequence[Message[Any]]:
        self.claiming.release()
        try:
            return self._receive(free, self._wait)
        finally:
            self.claiming.acquire()

    def _receive(self, free: int, wait: float) -> Sequence[Message[Any]]:
        return self._mailbox.receive(
            max_messages=min(free, self._batch_max),
            visibility_timeout=self._terms.timeout,
            wait_time_seconds=wait,
        )

    def release(self, jobs: list[Job[Any]]) -> None:
        """Release jobs that were never started."""
        self._keeper.drop(jobs)
        try:
            self._mailbox.release_many([job.message for job in jobs])
        except MailboxError as error:
            logger.warning(
                "messages not released: they return when their leases expire",
                mailbox=self._mailbox.name,
                count=len(jobs),
                error=str(error),
            )

    def _pause_after(self, error: MailboxError) -> None:
        self.connected = False
        if self.stopping and isinstance(error, MailboxClosedError):
            return  # closing the mailbox wakes a waiting receive
        if not error.retryable:
            raise error
        self._failed(error)
        logger.warning(
            "mailbox can't be reached; retrying",
            mailbox=self._mailbox.name,
            seconds=self._pause / SECOND_NS,
            error=str(error),
        )
        self._clock.wait(self._gate, self._clock.now() + self._pause)
        self._pause = min(2 * self._pause, _PAUSE_NS_MAX)
