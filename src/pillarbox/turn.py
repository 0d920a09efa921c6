"""A lock for what takes microseconds, made for many threads under one interpreter.

A waiter of `threading.Lock` owns it as soon as it is released, and only then queues for the
interpreter: meanwhile the one that runs meets a lock that is taken, so every step becomes a
change of threads. A turn is taken only by a thread that runs: whoever finds it taken lets the
others run, and looks again. It must not be held while anything slow happens.
"""

from __future__ import annotations

from time import sleep

_YIELDS = 200  # how often others are let run at once before it is a matter of time
_PAUSE_SECONDS = 0.000_05
_PAUSE_SECONDS_MAX = 0.002


class Turn:
    """Held by one thread at a time: `with turn:`.

    The quick verbs take it without a call, which is as fast as a lock can be, and an interrupt
    (Ctrl-C) can't come between taking it and the `try` that gives it back:

        try:
            del token[0]
        except IndexError:
            acquire()
        try: ...
        finally:
            give(None)
    """

    __slots__ = ("give", "token")

    def __init__(self) -> None:
        self.token: list[None] = [None]  # empty while someone has the turn
        self.give = self.token.append

    def wait(self) -> None:
        """Return when it looks free; whoever takes it first has it."""
        token = self.token
        for _ in range(_YIELDS):
            sleep(0)
            if token:
                return
        pause = _PAUSE_SECONDS
        while not token:
            sleep(pause)
            pause = min(2 * pause, _PAUSE_SECONDS_MAX)

    def acquire(self) -> None:
        token = self.token
        while True:
            try:
                del token[0]
            except IndexError:
                self.wait()
            else:
                return

    def release(self) -> None:
        self.token.append(None)

    __enter__ = acquire

    def __exit__(self, *_: object) -> None:
        self.token.append(None)

    def restart_after_fork(self) -> None:
        """In the child nobody else is left who could give it back."""
        self.token[:] = [None]
