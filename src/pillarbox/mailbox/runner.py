"""Verbs as generators, and the two loops that run them: `run_sync` and `run_async`.

A verb yields what it needs from its server, is sent the answer, and returns its result. It does
no I/O itself, so each verb is written once. A connection's `do` makes one request; an error of
ours or of the system that it raises is thrown into the verb.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Generator
from typing import Any, TypeVar

from pillarbox.core.errors import InvalidParameterError, MailboxError

R = TypeVar("R")

Verb = Generator[Any, Any, R]
Step = Callable[[], R]  # a verb of a queue in this process: there is no I/O to ask for
Runnable = Verb[R] | Step[R]


class Interrupted(Exception):
    """A request that was waiting ended because its mailbox was closed."""


def run_sync(do: Callable[[Any], Any], verb: Runnable[R]) -> R:
    """Run a verb to its end; its result."""
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
    """`run_sync` for asyncio. A verb that is cancelled may still clean up."""
    result: R
    if callable(verb):  # it may wait for the disk, or for a message
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


# The same code over a blocking client and over one for asyncio with the same methods: it yields
# what each call gives back, which is the answer itself or something to await.


def run_blocking(calls: Verb[R]) -> R:
    """Run a generator that yields answers: each is sent back to it."""
    try:
        answer = next(calls)
        while True:
            answer = calls.send(answer)
    except StopIteration as done:
        result: R = done.value
        return result


async def run_awaiting(calls: Verb[R]) -> R:
    """Run a generator that yields awaitables: it is sent their answers, and thrown their errors."""
    task: Any = asyncio.current_task()
    # `wait_for` of Python 3.11 may swallow a cancellation, or tell of another error instead. One
    # that was asked for, as by Ctrl-C, and is not delivered yet counts as new.
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
    """What an awaitable answers, or its error."""
    try:
        return await call, None
    except BaseException as error:  # noqa: BLE001 - the generator's to judge
        return None, error


class Connection(ABC):
    """A mailbox's way to its server, for threads. Other mailboxes may share it."""

    @abstractmethod
    def do(self, request: Any) -> Any:
        """Make a request and wait for its answer."""

    @abstractmethod
    def wake(self, verbs: Any) -> None:
        """End the requests of these verbs that wait for a message; their mailbox was closed."""

    @abstractmethod
    def close(self) -> None:
        """Keep no connection open. A later request opens one for itself."""


class AsyncConnection(ABC):
    """A mailbox's way to its server, for one event loop."""

    _loop: asyncio.AbstractEventLoop | None = None

    @abstractmethod
    async def do(self, request: Any) -> Any:
        """Make a request and wait for its answer."""

    @abstractmethod
    async def wake(self, verbs: Any) -> None:
        """End the requests of these verbs that wait for a message; their mailbox was closed."""

    @abstractmethod
    async def close(self) -> None:
        """Keep no connection open. A later request opens one for itself."""

    def _moved(self) -> bool:
        """Whether this is its first use on the running loop; raises if another loop uses it."""
        loop = asyncio.get_running_loop()
        if self._loop is loop:
            return False
        if self._loop is not None and not self._loop.is_closed():
            raise InvalidParameterError(
                "event loop",
                loop,
                "the one that the mailbox is used on; open it once in each thread with a loop",
            )
        self._loop = loop
        return True


class ShieldedCalls:
    """Calls that a cancelled task does not tear off, for connections of an event loop.

    Such a call goes on by itself to its end, and what it was given then is handed to its `undo`.
    """

    _call: Any  # makes one call, and
    _close: Any  # closes the connections; both as generators for `run_awaiting`

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._closed = False
        self._orphans: set[asyncio.Task[Any]] = set()  # calls whose caller was cancelled

    async def _run(self, call: Any) -> Any:
        return await run_awaiting(self._call(call))

    async def close(self) -> None:
        """Keep no connection open. A later request opens one for itself."""
        self._closed = True
        if self._orphans:
            await asyncio.gather(*self._orphans, return_exceptions=True)
        await run_awaiting(self._close())

    async def _shielded(self, call: Any, *, cancel: bool = False) -> Any:
        """Run a call that has an `undo`; with `cancel` it ends at once if its task is cancelled."""
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
        except MailboxError:  # its lease will run out
            return
