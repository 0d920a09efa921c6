"""Verbs as generators, and the two loops that run them: `run_sync` and `run_async`.

A verb yields each request to its server, is sent the response, and returns its result. It does no
I/O itself, so each verb is written once. A connection's `do` makes one request; a `MailboxError`
or `OSError` that it raises is thrown into the verb.
"""

from __future__ import annotations

import asyncio
import random
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Generator
from typing import Any, NoReturn, TypeVar

from pillarbox.core.errors import (
    InvalidParameterError,
    MailboxConnectionError,
    MailboxError,
    UnknownOutcomeError,
)
from pillarbox.mailbox.waiters import closed_gate, open_gate

R = TypeVar("R")

_PAUSE_SECONDS = 0.01  # before the second attempt; doubled each time, with jitter
_PAUSE_SECONDS_MAX = 0.5

Verb = Generator[Any, Any, R]
Step = Callable[[], R]  # a verb of a queue in this process, which needs no server
Runnable = Verb[R] | Step[R]


class Interrupted(Exception):
    """A waiting request ended because its mailbox was closed."""


def run_sync(do: Callable[[Any], Any], verb: Runnable[R]) -> R:
    """Run a verb to completion and return its result."""
    if callable(verb):
        return verb()
    try:
        request = next(verb)
        while True:
            try:
                answer = do(request)
            except (MailboxError, Interrupted, OSError) as error:
                request = verb.throw(error)
            else:
                request = verb.send(answer)
    except StopIteration as done:
        result: R = done.value
        return result


async def run_async(do: Callable[[Any], Awaitable[Any]], verb: Runnable[R]) -> R:
    """Run a verb on the event loop. A cancelled verb may still clean up."""
    result: R
    if callable(verb):  # it may wait for the disk or for a message
        result = await do(verb)
        return result
    try:
        request = next(verb)
        while True:
            try:
                answer = await do(request)
            except (MailboxError, Interrupted, OSError, asyncio.CancelledError) as error:
                request = verb.throw(error)
            else:
                request = verb.send(answer)
    except StopIteration as done:
        result = done.value
        return result


# For code shared by a blocking client and an asyncio client with the same methods: it yields
# the result of each call, which is a value or an awaitable.


def run_blocking(calls: Verb[R]) -> R:
    """Run a generator that yields values; send each one back."""
    return run_sync(lambda value: value, calls)


async def run_awaiting(calls: Verb[R]) -> R:
    """Run a generator that yields awaitables; send it their results and throw their errors."""
    task: Any = asyncio.current_task()
    # Python 3.11's `wait_for` may swallow a cancellation or raise another error instead. A
    # cancellation that was requested, for example by Ctrl-C, but not yet delivered counts as new.
    cancels = task.cancelling() - task._must_cancel
    try:
        call = next(calls)
        while True:
            answer, failure = await _outcome(call)
            if task.cancelling() > cancels and not isinstance(failure, asyncio.CancelledError):
                failure = asyncio.CancelledError()
            cancels = task.cancelling()
            call = calls.send(answer) if failure is None else calls.throw(failure)
    except StopIteration as done:
        result: R = done.value
        return result


async def _outcome(call: Any) -> tuple[Any, BaseException | None]:
    """Return the result of an awaitable, or its error."""
    try:
        return await call, None
    except BaseException as error:  # noqa: BLE001 - the generator handles it
        return None, error


class Connection(ABC):
    """A thread-safe connection to a server, which several mailboxes may share."""

    @abstractmethod
    def do(self, request: Any) -> Any:
        """Make a request and return the response."""

    @abstractmethod
    def wake(self, verbs: Any) -> None:
        """End the long polls of these verbs, because their mailbox was closed."""

    @abstractmethod
    def close(self) -> None:
        """Close idle connections. A later request opens a new one."""


class Parked:
    """A request that may be waiting; `wake` ends it from another thread without losing messages."""

    __slots__ = ("_hang_up", "_lock", "gate", "over", "owner")

    def __init__(self, owner: Any) -> None:
        self.owner = owner
        self.over = False
        self.gate = closed_gate()  # opened to end a retry pause early
        self._hang_up: Callable[[], object] | None = None
        self._lock = threading.RLock()  # a signal handler may close the mailbox

    def use(self, hang_up: Callable[[], object] | None) -> None:
        """Set the function that ends the wait; None once the response has arrived."""
        with self._lock:
            self._hang_up = hang_up
            if self.over and hang_up is not None:
                hang_up()

    def wake(self) -> None:
        with self._lock:
            self.over = True
            open_gate(self.gate)
            if self._hang_up is not None:
                self._hang_up()


class ParkingConnection(Connection):
    """A connection whose waiting requests can be ended from another thread."""

    def __init__(self) -> None:
        self._parked: set[Parked] = set()
        self._lock = threading.RLock()  # a signal handler may receive or close, too

    def _park(self, owner: Any, ask: Callable[[Parked], R]) -> R:
        """Make a request that ends early when its owner's mailbox is closed."""
        parked = Parked(owner)
        with self._lock:
            self._parked.add(parked)
        try:
            if owner.closed:  # checked last: a signal handler may have closed it just before
                raise Interrupted
            return ask(parked)
        finally:
            with self._lock:
                self._parked.discard(parked)

    def wake(self, verbs: Any) -> None:
        with self._lock:
            parked = [each for each in self._parked if each.owner is verbs]
        for each in parked:
            each.wake()


class AsyncConnection(ABC):
    """A connection to a server for one event loop."""

    _loop: asyncio.AbstractEventLoop | None = None

    @abstractmethod
    async def do(self, request: Any) -> Any:
        """Make a request and return the response."""

    @abstractmethod
    async def wake(self, verbs: Any) -> None:
        """End the long polls of these verbs, because their mailbox was closed."""

    @abstractmethod
    async def close(self) -> None:
        """Close idle connections. A later request opens a new one."""

    def _moved(self) -> bool:
        """Return whether this is the first use on this event loop; raise if another one uses it."""
        loop = asyncio.get_running_loop()
        if self._loop is loop:
            return False
        if self._loop is not None and not self._loop.is_closed():
            raise InvalidParameterError(
                "event loop",
                loop,
                "the event loop that first used the mailbox; open one mailbox for each event loop",
            )
        self._loop = loop
        return True


class ShieldedCalls:
    """Calls on an event loop that complete even if their task is cancelled.

    The call runs to its end in the background; its result is then passed to its `undo`.
    """

    _call: Any  # makes one call
    _close: Any  # closes the connections; both are generators for `run_awaiting`

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._closed = False
        self._orphans: set[asyncio.Task[Any]] = set()  # calls whose caller was cancelled

    async def _run(self, call: Any) -> Any:
        return await run_awaiting(self._call(call))

    async def close(self) -> None:
        """Close idle connections. A later request opens a new one."""
        self._closed = True
        if self._orphans:
            await asyncio.gather(*self._orphans, return_exceptions=True)
        await run_awaiting(self._close())

    async def _shielded(self, call: Any, *, cancel: bool = False) -> Any:
        """Run a call that has an `undo`; with `cancel`, end it at once if its task is cancelled."""
        task = asyncio.ensure_future(self._run(call))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if cancel:
                task.cancel()
            orphan = asyncio.ensure_future(self._make_good(task, call))
            self._orphans.add(orphan)
            orphan.add_done_callback(self._orphans.discard)
            raise

    async def _make_good(self, task: asyncio.Future[Any], call: Any) -> None:
        reply: Any = (await asyncio.gather(task, return_exceptions=True))[0]
        try:
            undo = call.undo(None if isinstance(reply, BaseException) else reply)
            await run_async(self._run, undo)
        except MailboxError:  # the lease will expire
            return


class Attempts:
    """The attempts of one call while the server can't be reached.

    Each backend classifies its server's errors. The time limit and the final error are the same for
    all. The call is `doubtful` once a response was lost.
    """

    server: str  # display name

    def __init__(self, call: Any, seconds: float) -> None:
        self._call = call
        self._seconds = seconds
        self._until = time.monotonic() + seconds
        self._pause = _PAUSE_SECONDS

    def pause(self, error: Exception) -> float:
        """Return the seconds before the next attempt; raise if the time is up."""
        if time.monotonic() >= self._until:
            self.give_up(error)
        pause, self._pause = self._pause, min(self._pause * 2, _PAUSE_SECONDS_MAX)
        return pause * random.uniform(0.5, 1)

    def give_up(self, error: Exception) -> NoReturn:
        queue, why = self._call.queue, str(error).strip()
        if self._call.doubtful:
            raise UnknownOutcomeError(
                f"mailbox {queue!r}: the connection to {self.server} was lost before it answered "
                f"({why}); the call may or may not have taken effect: check the queue before you "
                "retry, or send with a deduplication_id"
            ) from error
        raise MailboxConnectionError(
            f"mailbox {queue!r}: {self.server} can't be reached (tried for {self._seconds:g} "
            f"seconds: {why}); nothing was changed: check that the server is running, then try "
            "again"
        ) from error
