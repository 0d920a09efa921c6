"""A lock for critical sections of microseconds, for many threads under one interpreter.

A waiter of `threading.Lock` owns it as soon as it is released, and only then queues for the
interpreter: meanwhile the running thread meets a taken lock, so every section becomes a thread
switch. Only a running thread takes this lock. A thread that finds it taken spins, giving up the
interpreter; after 10 ms it queues, and whoever releases the lock lets the first in the queue run.

The lock is not reentrant: a signal handler (or a destructor) that interrupts a critical section
and needs the same lock gets a `ReentrantCallError`.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from threading import get_ident
from time import monotonic, sleep
from types import FrameType
from typing import ParamSpec, TypeVar

from pillarbox.mutex import reentrant_call

P = ParamSpec("P")
R = TypeVar("R")

_SPIN_SECONDS = 0.01  # how long a thread spins before it queues
_RETRY_SECONDS = 0.01  # how long it waits in the queue before it retries
_YIELD_EVERY_SECONDS = 0.01  # how often a release lets the first in the queue run,
_YIELD_SECONDS = 0.0002  # and for how long
_MARK = "held"


class AdaptiveLock:
    """A mutual-exclusion lock: `lock.run(step)`, or `with lock:`.

    A signal handler may raise after any call, at the start of any function and at the end of each
    loop iteration; CPython guarantees this since 3.10. So there is none of these between taking
    the token and recording its holder, and the token is returned by a C call. (`with` can't do
    that on exit: use it where no handler raises.)

    A fast path that can't afford `run` takes the token itself if it is free, and marks its frame
    with a local variable named `held`, so that a signal handler that interrupts it is detected:

        try:
            del token[0]
        except IndexError:
            return the_general_way()
        held = token
        try: ...
        finally:
            del held
            give(None)
    """

    __slots__ = ("_yield_at", "give", "holder", "queue", "token")

    def __init__(self) -> None:
        self.token: list[None] = [None]  # empty while the lock is held
        self.give = self.token.append
        self.holder = 0  # the holding thread, unless a fast path holds it
        self.queue: dict[threading.Lock, None] = {}  # the gates of queued threads
        self._yield_at = 0.0

    def run(self, step: Callable[P, R], *args: P.args, **options: P.kwargs) -> R:
        """Call `step` while no other thread has the lock, and return its result."""
        me = get_ident()
        if self.holder == me:
            raise reentrant_call()
        try:
            try:
                del self.token[0]
            except IndexError:
                self._take(me)
            else:
                self.holder = me
            return step(*args, **options)
        finally:
            if self.holder == me:  # taken by this call
                self.holder = 0
                self.token.append(None)
                if self.queue:
                    self.yield_to_queue()

    def __enter__(self) -> None:
        me = get_ident()
        if self.holder == me:
            raise reentrant_call()
        self._take(me)

    def __exit__(self, *_: object) -> None:
        self.holder = 0
        self.token.append(None)
        if self.queue:
            self.yield_to_queue()

    def is_mine(self) -> bool:
        """Return whether this thread holds the lock, even in a frame a handler interrupted."""
        return self.holder == get_ident() or (not self.token and _marked(self.token))

    def restart_after_fork(self) -> None:
        """Reset the lock in a forked child, where no other thread holds it or waits for it."""
        self.token[:] = [None]
        self.holder = 0
        self.queue.clear()

    def _try(self, me: int) -> bool:
        """Take the lock if it is free."""
        try:
            del self.token[0]
        except IndexError:
            return False
        self.holder = me
        return True

    def _take(self, me: int) -> None:
        if self._try(me):
            return
        if _marked(self.token):
            raise reentrant_call()
        until = monotonic() + _SPIN_SECONDS
        while monotonic() < until:
            sleep(0)
            if self._try(me):
                return
        self._wait_in_queue(me)

    def _wait_in_queue(self, me: int) -> None:
        gate = threading.Lock()
        gate.acquire()
        self.queue[gate] = None
        try:
            while not self._try(me):
                gate.acquire(timeout=_RETRY_SECONDS)
        finally:
            del self.queue[gate]

    def yield_to_queue(self) -> None:
        """Let the first in the queue run while the lock is free."""
        now = monotonic()
        if now < self._yield_at:
            return
        self._yield_at = now + _YIELD_EVERY_SECONDS
        with suppress(StopIteration, RuntimeError):  # the waiter is gone, or about to retry
            next(iter(self.queue)).release()
            sleep(_YIELD_SECONDS)


def _marked(token: list[None]) -> bool:
    """Return whether an interrupted frame of this thread is marked as holding the token."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if _MARK in frame.f_code.co_varnames and frame.f_locals.get(_MARK) is token:
            return True
        frame = frame.f_back
    return False
