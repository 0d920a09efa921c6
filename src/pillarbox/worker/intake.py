"""How a worker comes by its messages: no more than can start, held from the first moment.

What arrives after the worker was told to stop is given back uncounted. A server that can't be
reached is tried again, ever more slowly; any other error of the mailbox ends the worker.
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
from pillarbox.mailbox.waiters import open_gate
from pillarbox.worker.job import Job
from pillarbox.worker.lease_keeper import LeaseKeeper, Terms

_BATCH_EVERYWHERE = 10  # what every backend can receive at a time
_PAUSE_NS = SECOND_NS // 10  # after a failed receive, then doubled
_PAUSE_NS_MAX = 10 * SECOND_NS


class Intake:
    """Receives for a crew. One thread at a time calls `claim`."""

    def __init__(
        self,
        terms: Terms[Any],
        keeper: LeaseKeeper,
        clock: Clock,
        *,
        wait: float,
        failed: Callable[[MailboxError], object],
    ) -> None:
        self.stopping = threading.Event()
        self.connected = False  # the last receive was answered
        self._terms = terms
        self._mailbox = terms.mailbox
        self._keeper = keeper
        self._clock = clock
        self._wait = wait
        self._failed = failed
        self._most = MESSAGES_MAX
        # A store in this process writes receives without waiting; a message that kills the
        # process at once would never be counted, and never be dead.
        self._confirms = (
            isinstance(self._mailbox, DurableMailbox) and self._mailbox.dead_letters is not None
        )
        self._pause = _PAUSE_NS
        self._gate = threading.Lock()
        self._gate.acquire()

    def stop(self) -> None:
        """From now on nothing is claimed."""
        self.stopping.set()
        open_gate(self._gate)

    def claim(self, free: int) -> list[Job[Any]]:
        """At most `free` jobs; none if none came, or if the server can't be reached."""
        try:
            # The first one does not wait: whether the server is there shall be known at once.
            messages = () if self.connected else self._receive(free, 0)
            self.connected = True
            messages = messages or self._receive(free, self._wait)
        except InvalidParameterError as error:
            if error.parameter != "max_messages" or self._most == _BATCH_EVERYWHERE:
                raise
            self._most = _BATCH_EVERYWHERE
            return []
        except MailboxError as error:
            self._rest_after(error)
            return []
        self._pause = _PAUSE_NS
        if not messages:
            return []
        now = self._keeper.now()
        jobs = [Job(each, self._terms, now, self._keeper, self.stopping) for each in messages]
        if self.stopping.is_set():
            self.give_back(jobs)
            return []
        if self._confirms:
            self._mailbox.extend_visibility_many(messages, self._terms.timeout)
        self._keeper.hold(jobs)
        return jobs

    def _receive(self, free: int, wait: float) -> Sequence[Message[Any]]:
        return self._mailbox.receive(
            max_messages=min(free, self._most),
            visibility_timeout=self._terms.timeout,
            wait_time_seconds=wait,
        )

    def give_back(self, jobs: list[Job[Any]]) -> None:
        """These were never started."""
        self._keeper.drop(jobs)
        try:
            self._mailbox.release_many([job.message for job in jobs])
        except MailboxError as error:
            logger.warning(
                "messages not given back: they return when their leases run out",
                mailbox=self._mailbox.name,
                count=len(jobs),
                error=str(error),
            )

    def _rest_after(self, error: MailboxError) -> None:
        self.connected = False
        if self.stopping.is_set() and isinstance(error, MailboxClosedError):
            return  # that is how a parked receive is woken
        if not error.retryable:
            raise error
        self._failed(error)
        logger.warning(
            "mailbox can't be reached; trying again",
            mailbox=self._mailbox.name,
            seconds=self._pause / SECOND_NS,
            error=str(error),
        )
        self._clock.wait(self._gate, self._clock.now() + self._pause)
        self._pause = min(2 * self._pause, _PAUSE_NS_MAX)
