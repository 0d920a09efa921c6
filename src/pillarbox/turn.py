"""A lock for what takes microseconds, made for many threads under one interpreter.

A waiter of `threading.Lock` owns it as soon as it is released, and only then queues for the
interpreter: meanwhile the one that runs meets a lock that is taken, so every step becomes a
change of threads. A turn is taken only by a thread that runs: whoever finds it taken lets the
others run, and looks again. Who has looked in vain for long stands in line, and those who
release it make way now and then: nobody starves.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from threading import get_ident
from time import monotonic, sleep

_PATIENCE_SECONDS = 0.01  # how long one looks before it stands in line
_PAUSE_SECONDS = 0.01  # how long one stands there before it looks by itself
_BETWEEN_SECONDS = 0.01  # how often way is made for the first in line,
_ASIDE_SECONDS = 0.0002  # and for how long


class Turn:
    """Held by one thread at a time: `with turn:`. It can't be taken twice.

    An interrupt (Ctrl-C) is raised after a call, or where a function begins. So the token is
    taken by a statement that calls nothing, and a thread that was kept from releasing it has it
    when it comes back. Verbs that never wait within it do without any call to take it:

        try:
            del token[0]
        except IndexError:
            wait()
        try: ...
        finally:
            give(None)

    Where something waits within it, `if line: make_way()` has to follow.
    """

    __slots__ = ("_holder", "_make_way_at", "give", "line", "token")

    def __init__(self) -> None:
        self.token: list[None] = [None]  # empty while someone has the turn
        self.give = self.token.append
        self._holder = 0  # the thread that took it by `acquire`
        self.line: dict[threading.Lock, None] = {}  # the gates of those who wait for long
        self._make_way_at = 0.0

    def acquire(self) -> None:
        """Return with the turn, which the caller must release."""
        me = get_ident()
        try:
            del self.token[0]
        except IndexError:
            self.wait()
        self._holder = me

    def release(self, *_: object) -> None:
        """Give it back."""
        self._holder = 0
        self.token.append(None)
        if self.line:
            self.make_way()

    __enter__ = acquire
    __exit__ = release

    def restart_after_fork(self) -> None:
        """In the child nobody else is left who could give it back, or who waits for it."""
        self.token[:] = [None]
        self._holder = 0
        self.line.clear()

    def wait(self) -> None:
        """Return with the turn that was found taken."""
        if self._holder == get_ident():  # an interrupt has kept this thread from releasing it
            self._holder = 0
            return
        until = monotonic() + _PATIENCE_SECONDS
        while monotonic() < until:
            sleep(0)
            try:
                del self.token[0]
            except IndexError:
                continue
            return
        self._stand_in_line()

    def _stand_in_line(self) -> None:
        gate = threading.Lock()
        gate.acquire()
        self.line[gate] = None
        try:
            while True:
                gate.acquire(timeout=_PAUSE_SECONDS)
                try:
                    del self.token[0]
                except IndexError:
                    continue
                return
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
