"""Writes DataFrames to a log, exactly once: tasks encode the rows, the driver appends them.

Batch writes and streams share the sink. Spark pickles it for the tasks, whose commit messages
contain their records. Only `commit`, on the driver, accesses the log: an abandoned task can do no
harm, and an aborted batch leaves nothing behind.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from pillarbox.log.frame import FRAME_BYTES_MAX, EncodedRecords, encode_offsets
from pillarbox.mailbox.data_directory import is_log
from pillarbox.spark.commits import AT_LEAST_ONCE, EXACTLY_ONCE, open_to_commit, publish
from pillarbox.spark.errors import OptionError
from pillarbox.spark.location import local_directory
from pillarbox.spark.options import required
from pillarbox.spark.steps import make_durable, named_step, query_id, read_step
from pillarbox.spark.table import is_table

BODY = "body"
RUN = "spark.jobGroup.id"  # the local property with the run of a query
_SCHEMA = pa.schema([("record", pa.binary())])
_COMPRESSED = pa.ipc.IpcWriteOptions(compression="lz4")


class TaskOutput(WriterCommitMessage):
    """The records of one task as a compressed Arrow stream, and the run of the task."""

    def __init__(self, parts: Iterable[Any] = ()) -> None:
        """Collect binary Arrow arrays."""
        context = TaskContext.get()
        self.run = (context.getLocalProperty(RUN) if context is not None else None) or ""
        self.rows = 0
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, _SCHEMA, options=_COMPRESSED) as stream:
            for records in parts:
                if records.null_count:
                    raise OptionError("a row without a body can't be written; filter out such rows")
                stream.write_batch(pa.record_batch([records], schema=_SCHEMA))
                self.rows += len(records)
        self._stream: bytes = sink.getvalue().to_pybytes()

    def chunks(self) -> list[Any]:
        """Return the records as Arrow arrays, in row order."""
        return list(pa.ipc.open_stream(self._stream).read_all().column("record").chunks)


def plain_records(outputs: Iterable[TaskOutput]) -> Iterator[bytes]:
    """Yield the records of the tasks, in task order."""
    for each in outputs:
        for chunk in each.chunks():
            yield from chunk.to_pylist()


def encoded_records(outputs: Sequence[TaskOutput]) -> Sequence[bytes] | EncodedRecords:
    """Return the records in the format of a log frame, which is Arrow's.

    Rows never become Python objects, which took longer than the rest of a commit.
    """
    chunks = [chunk for each in outputs for chunk in each.chunks()]
    total = sum(chunk.nbytes for chunk in chunks)
    if not any(map(len, chunks)) or total > FRAME_BYTES_MAX:
        return list(plain_records(outputs))  # no records, or more than a frame can hold
    records = pa.concat_arrays(chunks)
    _, offsets, data = records.buffers()
    ends = memoryview(offsets).cast("B").cast("i")[records.offset :][: len(records) + 1]
    if ends[0] != 0:
        return list(plain_records(outputs))
    payload = memoryview(data if data is not None else b"").cast("B")[: ends[-1]]
    return encode_offsets(ends, payload, len(records), ends[-1])


class LogSink:
    """Encodes rows as records of a log."""

    def __init__(self, options: Mapping[str, str], columns: Sequence[str]) -> None:
        url = required(options, "path", "save it to a URL: .save('file:./out')")
        self.directory = local_directory(url)
        self._bodies = BODY in columns
        if is_table(self.directory):
            raise OptionError(
                f"{self.directory} is a table of a pipeline; only the pipeline may write to it"
            )
        if not is_log(self.directory):
            open_to_commit(self.directory).close()

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        """Encode the rows of all Arrow batches. Runs in a task."""
        return TaskOutput(map(self._records, iterator))

    def _records(self, batch: Any) -> Any:
        """Return the body of each row; without a body column, the row as a JSON object."""
        if self._bodies:
            return batch.column(BODY).cast(pa.binary())
        return pa.array(
            [msgspec.json.encode(row) for row in batch.to_pylist(maps_as_pydicts="lossy")],
            pa.binary(),
        )


class LogStreamWriter(LogSink, DataSourceStreamArrowWriter):
    """Writes a stream to a log. Its steps are the batches in Spark's checkpoint."""

    def __init__(self, options: Mapping[str, str], columns: Sequence[str]) -> None:
        how = "set it on the query: .option('checkpointLocation', './checkpoints/orders')"
        self.checkpoint = required(options, "checkpointLocation", how)
        self.strategy = strategy_of(options)
        self.processor = options.get("processor") or query_id(self.checkpoint)
        super().__init__(options, columns)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        step = read_step(self.checkpoint, batchId, self.processor)
        make_durable(self.checkpoint, batchId)
        outputs, run = _outputs(messages)
        records = encoded_records(outputs)
        publish(self.directory, step, records, strategy=self.strategy, run=run)


class LogBatchWriter(LogSink, DataSourceArrowWriter):
    """Writes a DataFrame to a log in one atomic append; exactly once if it names its step."""

    def __init__(self, options: Mapping[str, str], columns: Sequence[str]) -> None:
        self.strategy = strategy_of(options)
        self.step = None
        if "step" in options:
            how = "a write that names its step needs it as well"
            self.step = named_step(required(options, "processor", how), options["step"])
        super().__init__(options, columns)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        outputs, run = _outputs(messages)
        if self.step is None:
            with open_to_commit(self.directory) as log:
                log.append_many(list(plain_records(outputs)))
        else:
            records = encoded_records(outputs)
            publish(self.directory, self.step, records, strategy=self.strategy, run=run)


def _outputs(messages: Sequence[WriterCommitMessage | None]) -> tuple[list[TaskOutput], str]:
    """Return the outputs of the tasks, and the run of the tasks."""
    outputs = [each for each in messages if isinstance(each, TaskOutput)]
    return outputs, next((each.run for each in outputs), "")


def strategy_of(options: Mapping[str, str]) -> str:
    strategy = options.get("strategy", EXACTLY_ONCE)
    if strategy == "at-most-once":
        raise OptionError(
            "option strategy can't be at-most-once: Spark always repeats an interrupted batch."
            f" Use {EXACTLY_ONCE}, which also writes it at most once, without losing it, or a"
            " stream of a Pipeline with strategy='at-most-once'"
        )
    if strategy not in (EXACTLY_ONCE, AT_LEAST_ONCE):
        raise OptionError(
            f"option strategy must be {EXACTLY_ONCE} or {AT_LEAST_ONCE}; got {strategy!r}"
        )
    return strategy
