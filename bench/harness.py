"""Two kinds of benchmark: races between contenders, and figures from a process of their own.

The rounds of a race are interleaved, and every second one runs in reverse order, so that a
noisy machine is noisy for all; where operations are short, so are the turns that contenders
take within a round. Nothing but the contender runs while it is timed. Ratios are
taken round by round, and their median counts. Benchmarks report; they never fail a build.
"""

from __future__ import annotations

import gc
import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from statistics import median
from time import perf_counter_ns
from typing import Protocol

ROUNDS = 5
QUICK_DIVISOR = 50

Run = Callable[[int], object]  # does so many operations
Prepare = Callable[[], AbstractContextManager[Run]]
Sized = Callable[[int], int]  # a number of operations or messages, smaller in a quick run
Costs = dict[str, list[float]]  # of each contender, by round
Step = Callable[[str, int], None]  # what goes on now, and how many steps were done since


def full_size(number: int) -> int:
    return number


def quick_size(number: int) -> int:
    return max(1, number // QUICK_DIVISOR)


class UnavailableError(Exception):
    """A contender can't run here; the text says why, and the table shows it."""


@dataclass(frozen=True, slots=True)
class Versus:
    """How a contender compares with another; with a bound, it is a target."""

    baseline: str
    speed_at_least: float | None = None
    cost_at_most: float | None = None

    def check(self, own: Sequence[float], costs: Costs) -> Check | None:
        """None if the other one did not run."""
        if not (other := costs.get(self.baseline)):
            return None
        if self.cost_at_most is not None:
            ratio = median(mine / theirs for mine, theirs in zip(own, other, strict=True))
            return Check(ratio, f"x cost of {self.baseline}", at_most=self.cost_at_most)
        ratio = median(theirs / mine for mine, theirs in zip(own, other, strict=True))
        return Check(ratio, f"x {self.baseline}", at_least=self.speed_at_least)


@dataclass(frozen=True, slots=True)
class VersusBest:
    """How a contender compares with the fastest of several, by their medians."""

    what: str
    baselines: tuple[str, ...]
    speed_at_least: float | None = None

    def check(self, own: Sequence[float], costs: Costs) -> Check | None:
        """None if none of them ran."""
        ran = [name for name in self.baselines if costs.get(name)]
        if not ran:
            return None
        best = min(ran, key=lambda name: median(costs[name]))
        ratio = median(theirs / mine for mine, theirs in zip(own, costs[best], strict=True))
        return Check(ratio, f"x {self.what} ({best})", at_least=self.speed_at_least)


@dataclass(frozen=True, slots=True)
class Check:
    """A measured value beside the bound that it should keep, if there is one."""

    value: float
    what: str
    at_least: float | None = None
    at_most: float | None = None

    @property
    def met(self) -> bool | None:
        """None if there is no bound, and the value is for information."""
        if self.at_least is not None:
            return self.value >= self.at_least
        return None if self.at_most is None else self.value <= self.at_most


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a result: the median, and all rounds behind it; no rounds if it was skipped."""

    name: str
    unit: str
    rounds: tuple[float, ...]
    checks: tuple[Check, ...] = ()
    note: str = ""

    @property
    def value(self) -> float:
        return median(self.rounds)


@dataclass(frozen=True, slots=True)
class Result:
    name: str
    rows: tuple[Row, ...]


class Benchmark(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def steps(self) -> int:
        """How far the progress bar goes."""

    def run(self, step: Step) -> Result: ...


@dataclass(frozen=True, slots=True)
class Contender:
    """One way to do the work. `prepare` builds what it needs, outside of the timing."""

    name: str
    prepare: Prepare
    operations: int
    versus: tuple[Versus | VersusBest, ...] = ()
    note: str = ""  # what it lacks, or does otherwise than the rest


@dataclass(frozen=True, slots=True)
class Race:
    """Contenders that do the same work, timed in interleaved rounds after a warm-up."""

    name: str
    contenders: tuple[Contender, ...]
    rounds: int = ROUNDS
    slices: int = 1  # in how many turns each contender does its part of a round

    @property
    def steps(self) -> int:
        return len(self.contenders) * (self.rounds + 2)  # preparing and warming up are steps too

    def run(self, step: Step) -> Result:
        costs: Costs = {contender.name: [] for contender in self.contenders}
        missing: dict[str, str] = {}
        with ExitStack() as stack:
            runners: list[tuple[Contender, Run]] = []
            for contender in self.contenders:
                step(f"prepare {contender.name}", 0)
                try:
                    runners.append((contender, stack.enter_context(contender.prepare())))
                except UnavailableError as reason:
                    missing[contender.name] = f"skipped: {reason}"
                    step(f"skip {contender.name}", self.rounds + 1)
                step(f"prepare {contender.name}", 1)
            for number in range(self.rounds + 1):
                label = f"round {number} of {self.rounds}" if number else "warm-up"
                spent = dict.fromkeys(costs, 0.0)
                for turn in range(self.slices):
                    for contender, run in runners:
                        step(f"{label}: {contender.name}", 0)
                        cost = _cost_ns(run, max(1, contender.operations // self.slices))
                        step(f"{label}: {contender.name}", turn == 0)
                        spent[contender.name] += cost / self.slices
                    runners.reverse()
                if number:
                    for contender, _ in runners:
                        costs[contender.name].append(spent[contender.name])
        return Result(self.name, tuple(self._row(x, costs, missing) for x in self.contenders))

    def _row(self, contender: Contender, costs: Costs, missing: dict[str, str]) -> Row:
        own = costs[contender.name]
        note = missing.get(contender.name, contender.note)
        found = (versus.check(own, costs) for versus in contender.versus) if own else ()
        checks = tuple(check for check in found if check is not None)
        return Row(contender.name, "ns", tuple(own), checks, note)


def _cost_ns(run: Run, operations: int) -> float:
    """Nanoseconds for each operation. The collector is on, as it is for users."""
    gc.collect()
    start = perf_counter_ns()
    run(operations)
    return (perf_counter_ns() - start) / operations


@dataclass(frozen=True, slots=True)
class Figure:
    """One number that a probe answers with under `key`."""

    key: str
    name: str
    unit: str
    at_most: float | None = None
    at_least: float | None = None


@dataclass(frozen=True, slots=True)
class Probe:
    """Figures of a whole process: `python -m module arguments...` prints them as JSON."""

    name: str
    module: str
    arguments: tuple[str, ...]
    figures: tuple[Figure, ...]
    steps: int = 1

    def run(self, step: Step) -> Result:
        step("in a process of its own", 0)
        command = [sys.executable, "-m", self.module, *self.arguments]
        done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
        found: dict[str, float] = json.loads(done.stdout)
        step("in a process of its own", 1)
        return Result(self.name, tuple(self._row(figure, found) for figure in self.figures))

    def _row(self, figure: Figure, found: dict[str, float]) -> Row:
        value = found[figure.key]
        check = Check(value, figure.unit, figure.at_least, figure.at_most)
        checks = () if check.met is None else (check,)
        return Row(figure.name, figure.unit, (value,), checks)
