"""How a contestant enters a race: alone in one thread, or with a crowd of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial

from bench.durable.contestants import Contestant, Verb, Verbs
from bench.durable.place import work_directory
from bench.harness import ROUNDS, Contender, Run, Sized, Versus, VersusBest

THREADS = 100

Pick = Callable[[Verbs], Verb]


@contextmanager
def _alone(contestant: Contestant, synced: bool, pick: Pick) -> Iterator[Run]:
    with work_directory() as path, contestant.opened(path, synced) as verbs:
        yield partial(_repeat, pick(verbs))


@contextmanager
def _crowd(contestant: Contestant, synced: bool, pick: Pick) -> Iterator[Run]:
    """Threads that live through all rounds, so that starting them is not timed."""
    with (
        work_directory() as path,
        contestant.opened(path, synced) as verbs,
        ThreadPoolExecutor(THREADS) as pool,
    ):
        verb = pick(verbs)

        def run(operations: int) -> None:
            share = operations // THREADS
            for done in [pool.submit(_repeat, verb, share) for _ in range(THREADS)]:
                done.result()

        yield run


def _repeat(verb: Verb, operations: int) -> None:
    for _ in range(operations):
        verb()


def alone(
    contestant: Contestant,
    pick: Pick,
    operations: int,
    *versus: Versus | VersusBest,
    synced: bool,
    name: str = "",
) -> Contender:
    prepare = partial(_alone, contestant, synced, pick)
    return Contender(name or contestant.name, prepare, operations, versus, contestant.lacks)


def crowd(
    contestant: Contestant,
    pick: Pick,
    operations: int,
    *versus: Versus | VersusBest,
    name: str = "",
) -> Contender:
    prepare = partial(_crowd, contestant, True, pick)
    if contestant.waits_by_sleeping:
        operations = max(1, operations // (10 * THREADS)) * THREADS
    return Contender(name or contestant.name, prepare, operations, versus, contestant.lacks)


def shared(sized: Sized, number: int) -> int:
    """A number of operations that the threads of a crowd can share."""
    return max(1, sized(number) // THREADS) * THREADS


def crowd_rounds(sized: Sized) -> int:
    """Fewer in a quick run: a hundred threads take their time, however little each does."""
    return min(ROUNDS, sized(100))
