"""The pipeline: the history of the mailbox `orders`, added up by tea, exactly once.

`python -m examples.demo.totals DATA ROWS` processes what is available and exits.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from msgspec import Struct

from examples.demo.shop import Order, Totals
from pillarbox.pipeline import Pipeline, PipelineError
from pillarbox.pipeline.status import read_status
from pillarbox.spark.table import TableLog

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

KILL_AFTER_STEPS = 2
_POLL_SECONDS = 0.02
_QUIET_SECONDS = 5.0


class Total(Struct, frozen=True):
    """The totals of one tea."""

    tea: str
    orders: int
    grams: int


def build(data: str) -> Pipeline:
    """The pipeline over the store in `data`, to which its broker writes meanwhile."""
    pipeline = Pipeline("tea", path=f"{data}/pipelines/tea")
    orders = pipeline.log("orders", Order, url=f"file:{os.path.abspath(data)}/orders")
    totals = pipeline.log("totals", Total)

    @pipeline.stream(inputs=orders, outputs=totals, mode="update")
    def add_up(orders: DataFrame) -> DataFrame:
        of_each = orders.groupBy("tea").agg({"*": "count", "grams": "sum"})
        return of_each.withColumnsRenamed({"count(1)": "orders", "sum(grams)": "grams"})

    return pipeline


def start(data: str, rows: int) -> subprocess.Popen[bytes]:
    """Run the pipeline in a process of its own, with `rows` rows per step."""
    command = [sys.executable, "-m", "examples.demo.totals", data, str(rows)]
    with open(f"{data}/pipeline.log", "ab") as log:
        return subprocess.Popen(command, stdout=log, stderr=log)  # noqa: S603 - our own module


def steps(process: subprocess.Popen[bytes], pipeline: Pipeline) -> Iterator[tuple[int, int]]:
    """Steps and orders done: on each change, and every few seconds, until the run ends."""
    reported, quiet_since = 0, time.monotonic()
    while process.poll() is None:
        done, rows = _progress(process.pid, pipeline)
        if done > reported or time.monotonic() - quiet_since > _QUIET_SECONDS:
            reported, quiet_since = done, time.monotonic()
            yield done, rows
        time.sleep(_POLL_SECONDS)


def _progress(pid: int, pipeline: Pipeline) -> tuple[int, int]:
    try:
        status = read_status(pipeline.paths.status)
    except PipelineError:  # no status yet
        return 0, 0
    known = status.processors["add_up"]
    return (known.steps, known.rows) if status.pid == pid else (0, 0)


def read_totals(pipeline: Pipeline) -> Totals:
    """The newest total of each tea."""
    found: Totals = {}
    for _, row in TableLog(pipeline.directory("totals")).rows():
        found[row["tea"]] = row["orders"], row["grams"]
    return dict(sorted(found.items()))


def main(data: str, rows: str) -> None:
    build(data).run(available_now=True, max_rows=int(rows)).wait()


if __name__ == "__main__":
    main(*sys.argv[1:])
