"""The pipeline: the history of the mailbox `orders`, added up by tea, exactly once.

`python -m pillarbox.demo.totals DATA ROWS` works off what is there and ends.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from pillarbox.demo.shop import Order, Totals
from pillarbox.log import Log
from pillarbox.pipeline import Pipeline, PipelineError
from pillarbox.pipeline.status import read_status

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

KILL_AFTER_STEPS = 2
_LOOK_SECONDS = 0.02


class Total(Struct, frozen=True):
    """All orders of one tea so far."""

    tea: str
    orders: int
    grams: int


def build(data: str) -> Pipeline:
    """The pipeline over the store in `data`, which its broker goes on writing."""
    pipeline = Pipeline("tea", path=f"{data}/pipelines/tea")
    orders = pipeline.log("orders", Order, url=f"file:{os.path.abspath(data)}/orders")
    totals = pipeline.log("totals", Total)

    @pipeline.stream(inputs=orders, outputs=totals, mode="update")
    def add_up(orders: DataFrame) -> DataFrame:
        of_each = orders.groupBy("tea").agg({"*": "count", "grams": "sum"})
        return of_each.withColumnsRenamed({"count(1)": "orders", "sum(grams)": "grams"})

    return pipeline


def start(data: str, rows: int) -> subprocess.Popen[bytes]:
    """Run the pipeline in a process of its own, so many rows a step."""
    command = [sys.executable, "-m", "pillarbox.demo.totals", data, str(rows)]
    with open(f"{data}/pipeline.log", "ab") as log:
        return subprocess.Popen(command, stdout=log, stderr=log)  # noqa: S603 - our own module


def kill_midway(process: subprocess.Popen[bytes], pipeline: Pipeline) -> int:
    """Kill the process with SIGKILL once it has done some steps; how many it had done."""
    while process.poll() is None:
        try:
            steps = read_status(pipeline.places.status).processors["add_up"].steps
        except PipelineError:  # it has said nothing yet
            steps = 0
        if steps >= KILL_AFTER_STEPS:
            process.kill()
            process.wait()
            return steps
        time.sleep(_LOOK_SECONDS)
    raise PipelineError(f"the pipeline ended too early, with exit code {process.returncode}")


def read_totals(pipeline: Pipeline) -> Totals:
    """The newest total of each tea."""
    found: Totals = {}
    with Log.open(pipeline.directory("totals"), readonly=True) as log:
        for frame in log.frames():
            for record in frame.records:
                total = msgspec.json.decode(record, type=Total)
                found[total.tea] = total.orders, total.grams
    return dict(sorted(found.items()))


def main(data: str, rows: str) -> None:
    build(data).run(available_now=True, max_rows=int(rows)).wait()


if __name__ == "__main__":
    main(*sys.argv[1:])
