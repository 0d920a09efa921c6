"""A lock for steps of microseconds, made for many threads under one interpreter.

A waiter of `threading.Lock` owns it as soon as it is released, and only then queues for the
interpreter: meanwhile the thread that runs meets a taken lock, so every step becomes a change
of threads. A turn is taken only by a thread that runs. Whoever finds it taken lets the others
run and looks again; after a while it stands in line, and those who release it make way.

The thread that has a turn can't take it again: a signal handler (or a destructor) that
interrupts a step and needs the same turn gets a `ReentrantCallError`.
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

_PATIENCE_SECONDS = 0.01  # how long one looks before it stands in line
_PAUSE_SECONDS = 0.01  # how long one stands there before it looks by itself
_BETWEEN_SECONDS = 0.01  # how often way is made for the first in line,
_ASIDE_SECONDS = 0.0002  # and for how long
_MARK = "held"


class Turn:
    """Held by one thread at a time: `turn.run(step)`, or `with turn:`.

    A handler may raise after any call, at any function's start and at the end of each round of
    a loop; CPython promises this since 3.10. So nothing of that stands between taking the token
    and noting its holder, and what was taken is given back by a call of C. (`with` can't do that
    when it ends: use it where no handler raises.)

    A verb that is too quick for `run` takes the token itself, if it is free, and says so in a
    local variable called `held`, by which a handler that interrupts it is recognised:

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

    __slots__ = ("_make_way_at", "give", "holder", "line", "token")

    def __init__(self) -> None:
        self.token: list[None] = [None]  # empty while someone has the turn
        self.give = self.token.append
        self.holder = 0  # the thread that has it, unless a quick verb does
        self.line: dict[threading.Lock, None] = {}  # the gates of those who wait for long
        self._make_way_at = 0.0

    def run(self, step: Callable[P, R], *args: P.args, **options: P.kwargs) -> R:
        """What the step answers, done while no other thread has the turn."""
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
            if self.holder == me:  # it was not before: this call has taken it
                self.holder = 0
                self.token.append(None)
                if self.line:
                    self.make_way()

    def __enter__(self) -> None:
        me = get_ident()
        if self.holder == me:
            raise reentrant_call()
        self._take(me)

    def __exit__(self, *_: object) -> None:
        self.holder = 0
        self.token.append(None)
        if self.line:
            self.make_way()

    def is_mine(self) -> bool:
        """Whether this thread has the turn, perhaps in a frame that a handler has interrupted."""
        return self.holder == get_ident() or (not self.token and _marked(self.token))

    def restart_after_fork(self) -> None:
        """In the child nobody else is left who could give it back, or who waits for it."""
        self.token[:] = [None]
        self.holder = 0
        self.line.clear()

    def _look(self, me: int) -> bool:
        """Take the turn if it is free."""
        try:
            del self.token[0]
        except IndexError:
            return False
        self.holder = me
        return True

    def _take(self, me: int) -> None:
        if self._look(me):
            return
        if _marked(self.token):
            raise reentrant_call()
        until = monotonic() + _PATIENCE_SECONDS
        while monotonic() < until:
            sleep(0)
            if self._look(me):
                return
        self._stand_in_line(me)

    def _stand_in_line(self, me: int) -> None:
        gate = threading.Lock()
        gate.acquire()
        self.line[gate] = None
        try:
            while not self._look(me):
                gate.acquire(timeout=_PAUSE_SECONDS)
        finally:
            del self.line[gate]

    def make_way(self) -> None:
        """Let the first in line look while the turn is free."""
        now = monotonic()
        if now < self._make_way_at:
            return
        self._make_way_at = now + _BETWEEN_SECONDS
        with suppress(StopIteration, RuntimeError):  # it is gone by now, or about to look
            next(iter(self.line)).release()
            sleep(_ASIDE_SECONDS)


def _marked(token: list[None]) -> bool:
    """Whether a frame below, which must have been interrupted, says that it holds the token."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if _MARK in frame.f_code.co_varnames and frame.f_locals.get(_MARK) is token:
            return True
        frame = frame.f_back
    return False
