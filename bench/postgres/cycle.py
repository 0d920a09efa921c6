"""The full cycle (send, receive, acknowledge): one at a time, in batches, and by eight clients."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace

from bench.harness import (
    Benchmark,
    Contender,
    Race,
    Result,
    Row,
    Run,
    Sized,
    Step,
    UnavailableError,
    Versus,
    VersusBest,
)
from bench.mailboxes import repeat
from bench.postgres.contestants import PEERS, PGMQ, PILLARBOX, Contestant, database

_CLIENTS = 8
_OTHERS = tuple(each.name for each in PEERS)


class _StuckError(Exception):
    """A peer that was given up, by name, and why."""


@dataclass(frozen=True, slots=True)
class _LenientRace:
    """A race that is run again without a peer that got stuck in it, and says so."""

    race: Race

    @property
    def name(self) -> str:
        return self.race.name

    @property
    def steps(self) -> int:
        return self.race.steps

    def run(self, step: Step) -> Result:
        try:
            return self.race.run(step)
        except _StuckError as error:
            stuck, reason = error.args
        others = tuple(each for each in self.race.contenders if each.name != stuck)
        result = _LenientRace(replace(self.race, contenders=others)).run(step)
        return replace(result, rows=(*result.rows, Row(stuck, "ns", (), (), f"stopped: {reason}")))


def _contender(
    contestant: Contestant,
    size: int,
    clients: int,
    messages: int,
    *versus: Versus | VersusBest,
) -> Contender:
    @contextmanager
    def prepare() -> Iterator[Run]:
        with ExitStack() as stack:
            url = database(contestant)
            threads = [stack.enter_context(ThreadPoolExecutor(1)) for _ in range(clients)]
            cycles = []
            for thread in threads:  # an event loop stays in its thread
                client = contestant.client(url)
                cycles.append(thread.submit(client.__enter__).result())
                stack.callback(
                    lambda t=thread, c=client: t.submit(c.__exit__, *[None] * 3).result()
                )

            def run(count: int) -> None:
                work = zip(threads, cycles, strict=True)
                done = [
                    thread.submit(repeat, cycle, size, count // clients) for thread, cycle in work
                ]
                try:
                    for future in done:
                        future.result()
                except UnavailableError as error:
                    raise _StuckError(contestant.name, str(error)) from error

            yield run

    return Contender(contestant.name, prepare, messages, versus, contestant.lacks)


def _race(
    name: str, size: int, clients: int, messages: int, sized: Sized, of_pgmq: float
) -> Benchmark:
    batch = size * clients
    messages = max(batch, sized(messages) // batch * batch)
    few = max(batch, messages // 4 // batch * batch)
    versus = (
        Versus(PGMQ.name, speed_at_least=of_pgmq),
        VersusBest("best of the others", _OTHERS, speed_at_least=1.5),
    )
    contenders = (
        _contender(PILLARBOX, size, clients, messages, *versus),
        _contender(PGMQ, size, clients, messages),
        *(_contender(each, size, clients, few) for each in PEERS),
    )
    return _LenientRace(Race(name, contenders))


def one_at_a_time(sized: Sized) -> Benchmark:
    return _race("full cycle, one at a time", 1, 1, 1_000, sized, 1.0)


def in_hundreds(sized: Sized) -> Benchmark:
    return _race("full cycle, batches of 100", 100, 1, 10_000, sized, 1.0)


def by_eight(sized: Sized) -> Benchmark:
    return _race("full cycle, 8 clients, one at a time", 1, _CLIENTS, 4_000, sized, 1.2)
