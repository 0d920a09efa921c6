"""Writes DataFrames to a log, exactly once: tasks encode the rows, the driver appends them.

Batch writes and streams share the sink. Spark pickles it for the tasks; only `commit`, on the
driver, accesses the log.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
import pyarrow as pa
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from pillarbox.mailbox.data_directory import is_log
from pillarbox.spark.commits import AT_LEAST_ONCE, EXACTLY_ONCE, open_to_commit, publish
from pillarbox.spark.errors import OptionError
from pillarbox.spark.location import local_directory
from pillarbox.spark.options import required
from pillarbox.spark.steps import make_durable, named_step, query_id, read_step
from pillarbox.spark.table import is_table
from pillarbox.spark.task_output import TaskOutput, encoded_records, plain_records

BODY = "body"


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
        return pa.array([msgspec.json.encode(row) for row in batch.to_pylist()], pa.binary())


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
