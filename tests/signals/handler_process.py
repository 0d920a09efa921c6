"""A program whose signal handler uses the mailbox that its main thread uses: run by a test.

It prints as JSON what was sent, what was received, and how often the handler was refused.
"""

from __future__ import annotations

import json
import signal
import sys
import threading
import time
from collections.abc import Callable
from itertools import count
from types import FrameType
from typing import Any

from pillarbox import MailboxClosedError, ReentrantCallError, open_mailbox
from pillarbox.adaptive_lock import AdaptiveLock

THREADS = 8
EVERY_SECONDS = 0.000_4
LEASE_SECONDS = 600


class Program:
    """One mailbox; everything that goes in and comes out is written down."""

    def __init__(self, url: str, options: dict[str, Any], quick: bool) -> None:
        self.open = lambda: open_mailbox(url, str, **options)
        self.box = self.open()
        self.quick = quick
        self.sent: list[str] = []
        self.received: list[str] = []
        self.refused = self.served = 0
        self.numbers = count()

    def send(self, who: str) -> None:
        body = f"{who} {next(self.numbers)}"
        self.box.send(
            body, **({} if self.quick else {"delay_seconds": 0, "attributes": {"a": "b"}})
        )
        self.sent.append(body)

    def receive(self, wait: float = 0) -> None:
        how = {"wait_time_seconds": wait} if wait else {}
        messages = self.box.receive(visibility_timeout=LEASE_SECONDS, **how)
        for message in messages:
            self.received.append(message.body)
            assert message.acknowledge()

    def drain(self) -> None:
        """Receive all that is left, also what comes back when its lease ends."""
        while self.box.approximate_count():
            self.receive(3)

    def work(self, rounds: int) -> None:
        for _ in range(rounds):
            self.send("main")
            self.receive()

    def handler(self, number: int, frame: FrameType | None) -> None:
        try:
            self.send("handler")
            self.receive()
            self.served += 1
        except ReentrantCallError:
            self.refused += 1
        tick()

    def crowd(self, each: int) -> None:
        def work() -> None:
            for _ in range(each):
                self.send("thread")
                self.receive()

        threads = [threading.Thread(target=work) for _ in range(THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.drain()

    def report(self) -> None:
        told = vars(self).items()
        print(json.dumps({name: value for name, value in told if name in _TOLD}))


_TOLD = ("sent", "received", "refused", "served", "woken", "left", "seconds")


def using(program: Program, rounds: int) -> None:
    """The handler sends and receives in the midst of the main thread's verbs; then a crowd does."""
    ticking(program.handler)
    program.work(rounds)
    still()
    program.crowd(max(20, rounds // 4))


def closing(program: Program, rounds: int) -> None:
    """The handler closes the mailbox in the midst of a verb; a thread that waits is woken."""
    waiting: Any = program
    program.box.close()
    program.box = program.open()
    woken: list[bool] = []

    def wait() -> None:
        other = program.box
        try:
            while not other.closed:
                for message in other.receive(wait_time_seconds=20, visibility_timeout=2):
                    program.received.append(message.body)
                    message.acknowledge()
        except MailboxClosedError:
            pass
        woken.append(True)

    thread = threading.Thread(target=wait)
    thread.start()
    ticks = count()

    def close(number: int, frame: FrameType | None) -> None:
        if next(ticks) == rounds % 7:
            program.box.close()
        else:
            tick()

    ticking(close)
    try:
        while True:
            program.send("main")
    except MailboxClosedError:
        pass
    still()
    thread.join(60)
    waiting.woken = bool(woken)
    program.box = program.open()
    program.drain()


def parked(program: Program, rounds: int) -> None:
    """The main thread waits for a message; the handler sends it one, then it closes the mailbox."""
    ticks, closed_at = count(), 0.0

    def handle(number: int, frame: FrameType | None) -> None:
        nonlocal closed_at
        if next(ticks) < rounds:
            program.handler(number, frame)
        else:
            still()
            closed_at = time.monotonic()
            program.box.close()

    ticking(handle)
    got: Any = program
    try:
        while not program.box.closed:
            program.receive(20)
    except MailboxClosedError:
        pass
    got.seconds = time.monotonic() - closed_at
    program.box = program.open()
    program.drain()


def ticking(handler: Callable[[int, FrameType | None], None]) -> None:
    signal.signal(signal.SIGALRM, handler)
    tick()


def tick() -> None:
    """Once more; a handler asks for it when it is done."""
    if not _still.is_set():
        signal.setitimer(signal.ITIMER_REAL, EVERY_SECONDS)


def still() -> None:
    _still.set()  # first: a handler that is about to run must not ask for the next
    signal.setitimer(signal.ITIMER_REAL, 0)


_still = threading.Event()


def as_it_was(self: AdaptiveLock, step: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """`AdaptiveLock.run` as it was: a holder was taken for one that could not release the lock."""
    me = threading.get_ident()
    if self.holder != me:
        self._take(me)
    try:
        return step(*args, **options)
    finally:
        self.holder = 0
        self.token.append(None)


def tokens(program: Program) -> int:
    """How many threads may be at work at the same time; there should be one."""
    return len(program.box._store.lock.token)  # type: ignore[attr-defined]


if __name__ == "__main__":
    what, url, options, rounds, quick = sys.argv[1:]
    if what == "control":
        AdaptiveLock.run = as_it_was  # type: ignore[method-assign]
    program = Program(url, json.loads(options), quick == "quick")
    if what == "control":
        ticking(program.handler)
        program.work(int(rounds))
        still()
        print(tokens(program))
        sys.exit()
    {"using": using, "closing": closing, "parked": parked}[what](program, int(rounds))
    program.box.close()
    program.report()
