"""An asyncio program that gets signals while it uses a mailbox: run by a test.

It prints as JSON what was confirmed as sent, what was received, and what handlers did.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from typing import Any

from pillarbox import ReentrantCallError, open_async_mailbox, open_mailbox

EVERY_SECONDS = 0.001
LEASE_SECONDS = 60.0
SHORT_LEASE_SECONDS = 1.0  # what an interrupted task had received comes back after it
AT_ONCE_MAX = 8


class Program:
    """One mailbox; everything that goes in and comes out is written down."""

    def __init__(self, url: str, options: dict[str, Any]) -> None:
        self.open = lambda: open_async_mailbox(url, str, **options)
        self.open_blocking = lambda: open_mailbox(url, str, **options)
        self.sent: list[str] = []
        self.received: list[str] = []
        self.lease_seconds = LEASE_SECONDS
        self.handled = self.refused = self.interrupted = 0
        self.numbers = count()

    async def send(self, box: Any, who: str) -> None:
        body = f"{who} {next(self.numbers)}"
        await box.send(body)
        self.sent.append(body)

    async def receive(self, box: Any, wait: float = 0) -> None:
        found = await box.receive(visibility_timeout=self.lease_seconds, wait_time_seconds=wait)
        for message in found:
            # Written down before it is acknowledged: what an interrupt makes uncertain comes again.
            self.received.append(message.body)
            await message.acknowledge()
        await asyncio.sleep(0)  # a mailbox in memory never has to wait for anything

    async def drain(self) -> None:
        async with self.open() as box:
            while await box.approximate_count():
                await self.receive(box, 2 * SHORT_LEASE_SECONDS)


def ticking(handler: Callable[..., object]) -> None:
    """Call this signal handler, and a millisecond after its end again, until `still`."""

    def handle(*_: object) -> None:
        handler()
        signal.setitimer(signal.ITIMER_REAL, EVERY_SECONDS)

    signal.signal(signal.SIGALRM, handle)
    signal.setitimer(signal.ITIMER_REAL, EVERY_SECONDS)


def still() -> None:
    signal.signal(signal.SIGALRM, signal.SIG_IGN)
    signal.setitimer(signal.ITIMER_REAL, 0)


async def scheduling(program: Program, rounds: int, on_loop: bool) -> None:
    """Handlers have the event loop send; on the loop itself, or interrupting whatever it does."""
    loop, tasks = asyncio.get_running_loop(), set[asyncio.Task[None]]()
    async with program.open() as box:

        def send() -> None:
            if len(tasks) < AT_ONCE_MAX:
                program.handled += 1
                task = asyncio.ensure_future(program.send(box, "handler"))
                tasks.add(task)
                task.add_done_callback(tasks.discard)

        if on_loop:
            loop.add_signal_handler(signal.SIGALRM, send)
            signal.setitimer(signal.ITIMER_REAL, EVERY_SECONDS, EVERY_SECONDS)
        else:
            ticking(lambda: loop.call_soon_threadsafe(send))
        for _ in range(rounds):
            await program.send(box, "main")
            await program.receive(box)
        if on_loop:
            signal.setitimer(signal.ITIMER_REAL, 0)
            loop.remove_signal_handler(signal.SIGALRM)
        still()
        await asyncio.sleep(0)  # what a handler has asked for last
        await asyncio.gather(*tasks)


async def blocking(program: Program, rounds: int) -> None:
    """Handlers use a blocking mailbox of the same store, in the midst of steps of the async one."""
    async with program.open() as box:
        with program.open_blocking() as other:

            def send() -> None:
                body = f"handler {next(program.numbers)}"
                try:
                    other.send(body)
                    program.sent.append(body)
                    program.handled += 1
                except ReentrantCallError:
                    program.refused += 1

            ticking(send)
            for _ in range(rounds):
                await program.send(box, "main")
                await program.receive(box)
            still()


def interrupting(program: Program, rounds: int) -> None:
    """Ctrl-C, again and again: each cancels the task that uses the mailbox."""
    program.lease_seconds = SHORT_LEASE_SECONDS

    async def work() -> None:
        async with program.open() as box:
            while True:
                await program.send(box, "main")
                await program.receive(box)

    for number in range(rounds):
        signal.signal(signal.SIGALRM, lambda *_: signal.raise_signal(signal.SIGINT))
        signal.setitimer(signal.ITIMER_REAL, 0.08 + number % 7 * 0.001)
        with suppress(KeyboardInterrupt):
            asyncio.run(work())
        program.interrupted += 1
    still()


if __name__ == "__main__":
    what, url, options, rounds = sys.argv[1], sys.argv[2], json.loads(sys.argv[3]), int(sys.argv[4])
    program = Program(url, options)
    if what == "interrupting":
        interrupting(program, 12)
    elif what == "blocking":
        asyncio.run(blocking(program, rounds))
    else:
        asyncio.run(scheduling(program, rounds, what == "on the loop"))
    asyncio.run(program.drain())
    told = ("sent", "received", "handled", "refused", "interrupted")
    print(json.dumps({name: getattr(program, name) for name in told}))
