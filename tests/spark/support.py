"""What the tests of the data source share."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from pyspark.errors import StreamingQueryException

from pillarbox.log import Log


def fill(path: Path, records: Iterable[bytes], *, batch: int = 100, **options: Any) -> None:
    """A closed log with these records, so many to a frame."""
    waiting = list(records)
    with Log.open(path, durability="os", **options) as log:
        for start in range(0, len(waiting), batch):
            log.append_many(waiting[start : start + batch])


def numbered(start: int, stop: int) -> list[bytes]:
    return [b'{"n":%d}' % number for number in range(start, stop)]


def contents(path: Path) -> list[bytes]:
    with Log.open(path, readonly=True) as log:
        return [record for frame in log.frames() for record in frame.records]


def stream(spark: Any, source: Path, sink: Path, checkpoint: Path, **options: Any) -> Any:
    """Copy a log into another as a stream until all that is there now is done; the query."""
    reader = spark.readStream.format("pillarbox").schema("body BINARY")
    reader = reader.options(**{k: v for k, v in options.items() if k in READ_OPTIONS})
    writer = reader.load(str(source)).writeStream.format("pillarbox")
    writer = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
    writer = writer.options(**{k: v for k, v in options.items() if k not in READ_OPTIONS})
    return to_the_end(lambda: writer.start(str(sink)))


def to_the_end(start: Callable[[], Any]) -> Any:
    """Wait for a query that ends by itself; the query.

    Spark gives a Python worker ten seconds to start, which a busy machine may not manage. Then
    the query has done nothing, and is started again.
    """
    for _ in range(5):
        query = start()
        try:
            query.awaitTermination()
        except StreamingQueryException as error:
            if "failed to connect back" not in str(error):
                raise
        else:
            return query
    raise AssertionError("Spark could not start a Python worker in five attempts")


READ_OPTIONS = (
    "maxRowsPerTrigger",
    "maxBytesPerTrigger",
    "start",
    "failOnDataLoss",
    "minPartitions",
)


def processes_below(driver: int, *marks: bytes) -> list[int]:
    """The processes below a driver that have one of these arguments in their command."""
    parents: dict[int, int] = {}
    known: list[int] = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError):
            pid = int(entry.name)
            parents[pid] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            command = (entry / "cmdline").read_bytes().split(b"\0")
            if any(mark in command for mark in marks):
                known.append(pid)

    def below(pid: int) -> bool:
        return pid == driver or (pid in parents and below(parents[pid]))

    return [pid for pid in known if below(pid)]
