"""A sample pipeline: orders of tea, added up by tea and minute, exactly once.

`python -m pillarbox.pipeline.sample PATH` runs it on what is there; `demonstrate` sends orders,
kills that process in the middle, starts it again, and adds up by other means to compare.
"""

from __future__ import annotations

import datetime
import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from pillarbox.log import Log
from pillarbox.pipeline.errors import PipelineError
from pillarbox.pipeline.pipeline import Pipeline
from pillarbox.pipeline.status import read_status

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

TEAS = ("Assam", "Ceylon", "Darjeeling", "Keemun", "Lapsang")
_OPENING = datetime.datetime(2026, 5, 1, 9, tzinfo=datetime.UTC)
_STEPS = 6
_LOOK_SECONDS = 0.02


class Order(msgspec.Struct, frozen=True):
    """What a customer wants."""

    number: int
    tea: str
    grams: int
    at: datetime.datetime


class Total(msgspec.Struct, frozen=True):
    """All orders of one tea in one minute, so far."""

    minute: datetime.datetime
    tea: str
    orders: int
    grams: int


Totals = dict[tuple[datetime.datetime, str], tuple[int, int]]


def build(path: str | os.PathLike[str]) -> Pipeline:
    """The pipeline, in this directory."""
    from pyspark.sql import functions as F  # noqa: PLC0415 - behind an extra

    pipeline = Pipeline("tea", path=path)
    orders = pipeline.log("orders", Order)
    totals = pipeline.log("totals", Total)

    @pipeline.stream(inputs=orders, outputs=totals, mode="update")
    def add_up(orders: DataFrame) -> DataFrame:
        minute = F.window("at", "1 minute").start.alias("minute")
        of_each = orders.withWatermark("at", "1 hour").groupBy(minute, "tea")
        return of_each.agg(F.count("*").alias("orders"), F.sum("grams").alias("grams"))

    return pipeline


def send_orders(pipeline: Pipeline, count: int, seed: int = 1840) -> Totals:
    """Append so many orders to the first log; what they should add up to."""
    chance = random.Random(seed)
    made = [
        Order(
            number,
            chance.choice(TEAS),
            chance.randrange(50, 500),
            _OPENING + datetime.timedelta(milliseconds=number * 40),
        )
        for number in range(count)
    ]
    path = pipeline.directory("orders")
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with Log.open(path) as log:
        log.append_many([msgspec.json.encode(order) for order in made])
    orders: Counter[tuple[datetime.datetime, str]] = Counter()
    grams: Counter[tuple[datetime.datetime, str]] = Counter()
    for order in made:
        key = order.at.replace(second=0, microsecond=0), order.tea
        orders[key] += 1
        grams[key] += order.grams
    return {key: (orders[key], grams[key]) for key in orders}


def read_totals(pipeline: Pipeline) -> Totals:
    """The newest total of each tea and minute."""
    found: Totals = {}
    with Log.open(pipeline.directory("totals"), readonly=True) as log:
        for frame in log.frames():
            for record in frame.records:
                total = msgspec.json.decode(record, type=Total)
                found[total.minute, total.tea] = total.orders, total.grams
    return found


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a demonstration."""

    orders: int
    killed_after_step: int
    steps: int
    exact: bool
    totals: Totals


def demonstrate(
    path: str | os.PathLike[str], *, count: int = 6000, say: Callable[[str], None] = print
) -> Outcome:
    """Send orders, kill the pipeline once on the way, and let it finish."""
    pipeline = build(path)
    expected = send_orders(pipeline, count)
    say(f"{count:,} orders are in the log; the pipeline starts")
    first = _start(path, count)
    killed = _kill_after(first, pipeline, 2)
    say(f"killed with SIGKILL after step {killed}; it starts again")
    if _start(path, count).wait() != 0:
        raise PipelineError(f"the sample pipeline failed; see {pipeline.places.status}")
    known = read_status(pipeline.places.status).processors["add_up"]
    totals = read_totals(pipeline)
    exact = totals == expected
    say(f"{sum(n for n, _ in totals.values()):,} orders in {len(totals)} totals, exact: {exact}")
    return Outcome(count, killed, (known.step or 0) + 1, exact, totals)


def _start(path: str | os.PathLike[str], count: int) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "pillarbox.pipeline.sample", os.fspath(path)]
    command.append(str(count // _STEPS))
    return subprocess.Popen(command, stderr=subprocess.DEVNULL)  # noqa: S603 - our own module


def _kill_after(process: subprocess.Popen[bytes], pipeline: Pipeline, steps: int) -> int:
    """Kill the process once it has done so many steps; the number of the last it reported."""
    while process.poll() is None:
        try:
            known = read_status(pipeline.places.status).processors["add_up"]
        except PipelineError:
            known = None
        if known is not None and known.steps >= steps:
            process.kill()
            process.wait()
            return known.step or 0
        time.sleep(_LOOK_SECONDS)
    raise PipelineError("the sample pipeline ended before it could be killed; send more orders")


def main(path: str, max_rows: str) -> None:
    """Work off the orders that are there."""
    build(path).run(available_now=True, max_rows=int(max_rows)).wait()


if __name__ == "__main__":
    main(*sys.argv[1:])
