"""A driver to be killed: three topologies at once, until every output is complete.

`python -m tests.spark.driver_process PLACE MASTER ROWS`: a chain (in -> mid -> out), a join of two
inputs (in, in2 -> joined) and a filter (in -> even). Prints a line for every look that it
takes at the outputs, so that the parent can choose a moment.
"""

from __future__ import annotations

import json
import os
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark import cloudpickle

from pillarbox import spark as on_spark
from pillarbox.log import Log, LogError
from tests.spark import killing

ROWS_PER_BATCH = 200


def main(place: Path, master: str, rows: int) -> None:
    os.environ["DRIVER_GROUP"] = str(os.getpgrp())
    conf = {"spark.sql.shuffle.partitions": "2", "spark.executorEnv.PYTHONPATH": os.getcwd()}
    spark = on_spark.session(master, app_name="driver", conf=conf)
    spark.sparkContext.setLogLevel("OFF")
    cloudpickle.register_pickle_by_value(killing)
    spark.dataSource.register(killing.KillingSource)
    queries = [Kept(start) for start in processors(spark, place)]
    wanted = {"mid": rows, "out": rows, "joined": rows, "even": rows // 2}
    while True:
        counts = {name: count(place / name) for name in wanted}
        print(json.dumps(counts), flush=True)
        if all(counts[name] >= wanted[name] for name in wanted):
            break
        for each in queries:
            each.keep_up()
        time.sleep(0.05)
    for each in queries:
        each.query.processAllAvailable()
        each.query.stop()
    spark.stop()
    print("done", flush=True)


#: What a query dies of when a Python worker of it was killed, or took too long to come up.
LOST = re.compile(r"(?i)worker|terminated|exited|crash|EOF|connection reset|broken pipe")
OURS = re.compile("DivergedError|FencedError|LogCorrupt|DataLoss")


class Kept:
    """A query that is started again when it has lost a worker.

    Spark gives a Python worker ten seconds to start, and no more; so one starts after the other.
    """

    def __init__(self, start: Callable[[], Any]) -> None:
        self._start = start
        self.query = self._started()

    def _started(self) -> Any:
        query = self._start()
        while query.isActive and query.lastProgress is None:
            time.sleep(0.02)
        return query

    def keep_up(self) -> None:
        if self.query.isActive:
            return
        error = str(self.query.exception())
        if OURS.search(error) or not LOST.search(error):
            raise SystemExit(f"a query has ended: {error}")
        self.query = self._started()


def processors(spark: Any, place: Path) -> list[Callable[[], Any]]:
    trap = {k: os.environ[k] for k in ("killIn", "killMarker", "killVictim") if k in os.environ}

    def source(name: str, schema: str) -> Any:
        rows = spark.readStream.format("killing").options(**trap).schema(schema)
        return rows.option("maxRowsPerTrigger", ROWS_PER_BATCH).load(str(place / name))

    def sink(frame: Any, processor: str, target: Path) -> Callable[[], Any]:
        writer = frame.writeStream.format("killing").option("processor", processor)
        writer = writer.option("checkpointLocation", str(place / "checkpoints" / processor))
        writer = writer.options(**trap)
        return lambda: writer.start(str(target))

    first = sink(source("in", "body BINARY"), "first", place / "mid")
    second = sink(source("mid", "body BINARY"), "second", place / "out")
    one = source("in", "n INT, body BINARY")
    two = source("in2", "n INT, body BINARY").selectExpr("n as m", "body as other")
    joined = one.join(two, one.n == two.m).selectExpr("concat(body, other) as body")
    third = sink(joined, "join", place / "joined")
    even = sink(one.where("n % 2 = 0").select("body"), "even", place / "even")
    return [first, second, third, even]


def count(path: Path) -> int:
    try:
        with Log.open(path, readonly=True) as log:
            return log.end_index
    except LogError:
        return 0


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
