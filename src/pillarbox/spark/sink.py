"""Writing DataFrames into logs, exactly once: tasks stage, the driver publishes.

The same writer serves a batch write and a stream. Spark pickles it to the tasks, which know
nothing but where to stage; only `commit`, on the driver, touches a log.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from pillarbox.spark.commits import open_to_commit
from pillarbox.spark.errors import OptionError
from pillarbox.spark.options import number, required
from pillarbox.spark.place import is_log, log_directory
from pillarbox.spark.publish import AT_LEAST_ONCE, EXACTLY_ONCE, Terms, commit, publish
from pillarbox.spark.staging import RUN, Stager, Written, collect_garbage
from pillarbox.spark.steps import Step, named_step, query_id, read_step
from pillarbox.spark.table import is_table

BODY, OUTPUT = "body", "output"
_LONE = ""  # the name of the one output of a write that has no several


class Staged(WriterCommitMessage):
    """What a task tells the driver."""

    def __init__(self, run: str, written: dict[str, Written]) -> None:
        self.run = run
        self.written = written


class LogSink:
    """One or more logs to write to, and how rows become records."""

    def __init__(self, options: Mapping[str, str], columns: Sequence[str], processor: str) -> None:
        self.processor = processor
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

    def stage(self, batches: Iterator[Any]) -> Staged:
        """In a task: write all rows where they wait for the driver."""
        context = TaskContext.get()
        assert context is not None
        run = context.getLocalProperty(RUN) or ""
        attempt = f"{context.partitionId()}-{context.taskAttemptId()}"
        stagers: dict[str, Stager] = {}
        for batch in batches:
            for name, part in self._routed(batch):
                if name not in stagers:
                    stagers[name] = Stager(self.outputs[name], self.processor, run, attempt)
                stagers[name].add(self._records(part))
        return Staged(run, {name: stager.finish() for name, stager in stagers.items()})

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

    def gathered(
        self, messages: Sequence[WriterCommitMessage | None]
    ) -> dict[str, tuple[str, list[Written]]]:
        """What all tasks wrote, by output, in the order of the tasks."""
        staged = [each for each in messages if isinstance(each, Staged)]
        return {
            name: (directory, [each.written[name] for each in staged if name in each.written])
            for name, directory in self.outputs.items()
        }

    def discard(self, run: str | None) -> None:
        """Remove what a run has staged; whatever there is, if no other has the processor's name."""
        for directory in self.outputs.values():
            collect_garbage(directory, self.processor, run)


class LogStreamWriter(DataSourceStreamArrowWriter):
    """A stream into logs. Its steps are Spark's batches, as its checkpoint has them."""

    def __init__(self, options: Mapping[str, str], columns: Sequence[str]) -> None:
        how = "set it on the query: .option('checkpointLocation', './checkpoints/orders')"
        self.checkpoint = required(options, "checkpointLocation", how)
        self.strategy, self.epoch = strategy_of(options), number(options, "epoch")
        processor = options.get("processor") or query_id(self.checkpoint)
        self.sink = LogSink(options, columns, processor)

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        return self.sink.stage(iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        step = read_step(self.checkpoint, batchId, self.sink.processor)
        terms = Terms(self.strategy, run_of(messages), self.epoch, self.checkpoint)
        publish(step, self.sink.gathered(messages), terms)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        self.sink.discard(run_of(messages))


class LogBatchWriter(DataSourceArrowWriter):
    """A DataFrame into logs: one atomic append, and once only if it says which step it is."""

    def __init__(self, options: Mapping[str, str], columns: Sequence[str]) -> None:
        self.checkpoint = options.get("checkpointLocation")
        self.strategy, self.epoch = strategy_of(options), number(options, "epoch")
        self.step = _batch_step(options, self.checkpoint)
        # Without a step, what is staged is told from that of others by a name nobody else has.
        processor = self.step.processor if self.step else f"batch-{secrets.token_hex(8)}"
        self.sink = LogSink(options, columns, processor)

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        return self.sink.stage(iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        gathered = self.sink.gathered(messages)
        if self.step is not None:
            terms = Terms(self.strategy, run_of(messages), self.epoch, self.checkpoint)
            publish(self.step, gathered, terms)
            return
        nameless = Step("", -1, (), "")
        for directory, written in gathered.values():
            with open_to_commit(directory) as log:
                commit(log, nameless, b"", written, run_of(messages))
        self.sink.discard(None)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        self.sink.discard(None if self.step is None else run_of(messages))


def run_of(messages: Sequence[WriterCommitMessage | None]) -> str:
    """The run of the tasks that told something; empty if none did."""
    return next((each.run for each in messages if isinstance(each, Staged)), "")


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
        return {name: log_directory(url) for name, url in named.items()}
    return {
        _LONE: log_directory(required(options, "path", "save it to a URL: .save('file:./out')"))
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
