"""What the contenders read: the same messages as a log, as Parquet, and as Python tuples."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from bench.harness import UnavailableError
from pillarbox.log import Log

MESSAGE = b"a message of two hundred bytes, as many of them are ".ljust(193, b".")
FRAME = 2_000
SPARKS_OWN_FILES = (
    "org.apache.spark.sql.execution.streaming.checkpointing.FileContextBasedCheckpointFileManager"
)


@cache
def spark_session(master: str = "local[2]") -> Any:
    """One session for all contenders."""
    try:
        from pillarbox import spark  # noqa: PLC0415 - behind an extra
        from pillarbox.spark.errors import JavaNotFoundError  # noqa: PLC0415
    except ImportError as error:
        raise UnavailableError(str(error)) from error
    try:
        session = spark.session(master, app_name="bench")
    except (ImportError, JavaNotFoundError) as error:
        raise UnavailableError(str(error)) from error
    session.sparkContext.setLogLevel("OFF")
    session.dataSource.register(tuple_source())
    return session


def as_spark_comes() -> Any:
    """The same session, with checkpoints written as Spark does it without our settings."""
    plain = spark_session().newSession()
    plain.conf.set("spark.sql.streaming.checkpointFileManagerClass", SPARKS_OWN_FILES)
    return plain


def message(number: int) -> bytes:
    return b"%07d" % number + MESSAGE


def write_log(path: Path, count: int) -> None:
    with Log.open(path, durability="os") as log:
        for start in range(0, count, FRAME):
            log.append_many([message(n) for n in range(start, min(start + FRAME, count))])


def write_parquet(path: Path, count: int, files: int) -> None:
    """The same rows, as Spark itself would have written them."""
    spark = spark_session()
    text = MESSAGE.decode()
    frame = spark.range(0, count, 1, files).selectExpr(
        "id as index", f"cast(concat(lpad(cast(id as string), 7, '0'), '{text}') as binary) as body"
    )
    frame.write.mode("append").parquet(str(path))


def tuple_source() -> Any:
    from pyspark.sql.datasource import (  # noqa: PLC0415 - behind an extra
        DataSource,
        DataSourceReader,
        InputPartition,
    )

    class TupleReader(DataSourceReader):
        def __init__(self, path: str) -> None:
            self.path = path

        def partitions(self) -> Sequence[InputPartition]:
            with Log.open(self.path, readonly=True) as log:
                middle = log.end_index // 2
                return [InputPartition((0, middle)), InputPartition((middle, log.end_index))]

        def read(self, partition: InputPartition) -> Iterator[tuple[int, bytes]]:
            with Log.open(self.path, readonly=True) as log:
                for frame in log.frames(*partition.value):
                    yield from enumerate(frame.records, frame.first_index)

    class TupleSource(DataSource):
        @classmethod
        def name(cls) -> str:
            return "tuples"

        def schema(self) -> str:
            return "index BIGINT, body BINARY"

        def reader(self, schema: Any) -> DataSourceReader:
            return TupleReader(self.options["path"])

    return TupleSource
