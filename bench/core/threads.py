"""Two producers and two consumers: the time until all messages are through."""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from bench.core.cycle import BODY
from bench.harness import Contender, Race, Run, Sized, Versus
from pillarbox import InMemoryMailbox

PAIRS = 2
ROUNDS = 15  # how threads take turns is chance: many short rounds say more than a few long ones
WAIT_SECONDS = 20

Part = Callable[[int], None]  # sends so many messages, or takes so many


@contextmanager
def _crew(produce: Part, consume: Part) -> Iterator[Run]:
    """Threads that live through all rounds, so that starting them is not timed."""
    with ThreadPoolExecutor(2 * PAIRS) as pool:

        def run(operations: int) -> None:
            parts = [part for _ in range(PAIRS) for part in (produce, consume)]
            for done in [pool.submit(part, operations // PAIRS) for part in parts]:
                done.result()

        yield run


@contextmanager
def pillarbox_threads() -> Iterator[Run]:
    box: InMemoryMailbox[str] = InMemoryMailbox("bench", str)

    def produce(count: int) -> None:
        for _ in range(count):
            box.send(BODY)

    def consume(count: int) -> None:
        for _ in range(count):
            (message,) = box.receive(wait_time_seconds=WAIT_SECONDS)
            message.acknowledge()

    with _crew(produce, consume) as run:
        yield run
    assert box.approximate_count() == 0


@contextmanager
def queue_threads() -> Iterator[Run]:
    line: queue.Queue[str] = queue.Queue()

    def produce(count: int) -> None:
        for _ in range(count):
            line.put(BODY)

    def consume(count: int) -> None:
        for _ in range(count):
            line.get()
            line.task_done()

    with _crew(produce, consume) as run:
        yield run
    assert line.empty()


def two_and_two(sized: Sized) -> Race:
    many = sized(60_000)
    versus = (Versus("queue.Queue", speed_at_least=1.0),)
    return Race(
        f"{PAIRS} producers and {PAIRS} consumers, in threads",
        (
            Contender("Pillarbox", pillarbox_threads, many, versus),
            Contender("queue.Queue", queue_threads, many),
        ),
        rounds=ROUNDS,
    )
