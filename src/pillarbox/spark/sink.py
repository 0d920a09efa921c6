"""Writing DataFrames into logs, exactly once: tasks encode the rows, the driver appends them.

The same sink serves a batch write and a stream. Spark pickles it to the tasks; only `commit`, on
the driver, touches a log.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from pillarbox.spark.commits import (
    AT_LEAST_ONCE,
    EXACTLY_ONCE,
    Records,
    open_to_commit,
    publish,
)
from pillarbox.spark.errors import OptionError
from pillarbox.spark.location import is_log, local_directory
from pillarbox.spark.options import number, required
from pillarbox.spark.steps import Step, named_step, query_id, read_step
from pillarbox.spark.table import is_table
from pillarbox.spark.task_output import TaskOutput, encoded_records, plain_records

BODY, OUTPUT = "body", "output"
_LONE = ""  # the name of the one output of a write that has no several


class LogSink:
    """One or more logs to write to, and how rows become records."""

    def __init__(self, options: Mapping[str, str], columns: Sequence[str]) -> None:
        self.outputs = _outputs(options)
        self._columns = [name for name in columns if name != OUTPUT or not self.several]
        self._bodies = BODY in columns
        if self.several and OUTPUT not in columns:
            raise OptionError(f"with option outputs each row needs a column {OUTPUT!r}")
        for directory in self.outputs.values():
            if is_table(directory):
                raise OptionError(f"{directory} is a table of a pipeline, which alone writes it")
            if not is_log(directory):
                open_to_commit(directory).close()

    @property
    def several(self) -> bool:
        return _LONE not in self.outputs

    def encode(self, batches: Iterator[Any]) -> TaskOutput:
        """In a task: the records of all rows."""
        routed = (each for batch in batches for each in self._routed(batch))
        return TaskOutput((name, self._records(part)) for name, part in routed)

    def _routed(self, batch: Any) -> Iterator[tuple[str, Any]]:
        if not self.several:
            yield _LONE, batch
            return
        targets = batch.column(OUTPUT)
        for target in targets.unique().to_pylist():
            if target not in self.outputs:
                known = ", ".join(sorted(self.outputs))
                raise OptionError(f"there is no output {target!r}; option outputs has {known}")
            yield target, batch.filter(pc.equal(targets, pa.scalar(target, targets.type)))

    def _records(self, batch: Any) -> Any:
        """The body of each row as bytes; a row without a body column becomes a JSON object."""
        if self._bodies:
            return batch.column(BODY).cast(pa.binary())
        rows = batch.select(self._columns).to_pylist()
        return pa.array([msgspec.json.encode(row) for row in rows], pa.binary())

    def gathered(self, outputs: Sequence[TaskOutput], *, encoded: bool) -> dict[str, Records]:
        """What all tasks wrote, by the directory of the log, in the order of the tasks."""
        names: dict[str, list[str]] = {}
        for name, directory in sorted(self.outputs.items()):
            names.setdefault(directory, []).append(name)
        gather = encoded_records if encoded else plain_records
        return {directory: gather(outputs, known) for directory, known in names.items()}


class LogStreamWriter(DataSourceStreamArrowWriter):
    """A stream into logs. Its steps are Spark's batches, as its checkpoint has them."""

    def __init__(self, options: Mapping[str, str], columns: Sequence[str]) -> None:
        how = "set it on the query: .option('checkpointLocation', './checkpoints/orders')"
        self.checkpoint = required(options, "checkpointLocation", how)
        self.strategy, self.epoch = strategy_of(options), number(options, "epoch")
        self.processor = options.get("processor") or query_id(self.checkpoint)
        self.sink = LogSink(options, columns)

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        return self.sink.encode(iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        step = read_step(self.checkpoint, batchId, self.processor)
        _publish(step, self, messages)


class LogBatchWriter(DataSourceArrowWriter):
    """A DataFrame into logs: one atomic append, and once only if it says which step it is."""

    def __init__(self, options: Mapping[str, str], columns: Sequence[str]) -> None:
        self.checkpoint = options.get("checkpointLocation")
        self.strategy, self.epoch = strategy_of(options), number(options, "epoch")
        self.step = _batch_step(options, self.checkpoint)
        self.sink = LogSink(options, columns)

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        return self.sink.encode(iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        _publish(self.step, self, messages)


def _publish(
    step: Step | None,
    writer: LogStreamWriter | LogBatchWriter,
    messages: Sequence[WriterCommitMessage | None],
) -> None:
    outputs = [each for each in messages if isinstance(each, TaskOutput)]
    publish(
        step,
        writer.sink.gathered(outputs, encoded=step is not None),
        strategy=writer.strategy,
        run=next((each.run for each in outputs), ""),
        epoch=writer.epoch,
        checkpoint=writer.checkpoint,
    )


def strategy_of(options: Mapping[str, str]) -> str:
    strategy = options.get("strategy", EXACTLY_ONCE)
    if strategy == "at-most-once":
        raise OptionError(
            f"option strategy can't be at-most-once: Spark runs a batch again whatever its sink"
            f" says, and {EXACTLY_ONCE} writes it at most once too, without losing it; a stream of"
            " a Pipeline may have strategy='at-most-once'"
        )
    if strategy not in (EXACTLY_ONCE, AT_LEAST_ONCE):
        raise OptionError(
            f"option strategy must be {EXACTLY_ONCE} or {AT_LEAST_ONCE}; got {strategy!r}"
        )
    return strategy


def _outputs(options: Mapping[str, str]) -> dict[str, str]:
    if "outputs" in options:
        try:
            named = msgspec.json.decode(options["outputs"], type=dict[str, str])
        except msgspec.DecodeError as error:
            raise OptionError(f"option outputs must be JSON, name to URL: {error}") from error
        return {name: local_directory(url) for name, url in named.items()}
    return {
        _LONE: local_directory(required(options, "path", "save it to a URL: .save('file:./out')"))
    }


def _batch_step(options: Mapping[str, str], checkpoint: str | None) -> Step | None:
    processor, name, batch = options.get("processor"), options.get("step"), options.get("batchId")
    if name is None and batch is None:
        return None
    if not processor:
        raise OptionError("a write that names its step needs option processor as well")
    if name is not None:
        return named_step(processor, name)
    if checkpoint is None or not (batch or "").isdigit():
        raise OptionError("option batchId (a number) goes with option checkpointLocation")
    return read_step(checkpoint, int(batch or 0), processor)
