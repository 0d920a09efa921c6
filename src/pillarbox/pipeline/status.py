"""Live figures of a pipeline, in one small file that commands and the dashboard read.

The process that runs the pipeline replaces the file as steps end; readers see the old one or
the new one. How far a reader lags behind is counted when somebody looks, from the logs.
"""

from __future__ import annotations

import datetime
import os
import threading
import time
from collections.abc import Collection
from typing import Literal

import msgspec

from pillarbox.logger import logger
from pillarbox.pipeline.errors import PipelineError
from pillarbox.pipeline.graph import Graph, Kind, LogRef, Processor
from pillarbox.pipeline.paths import open_readable
from pillarbox.spark.files import files_at
from pillarbox.spark.location import is_remote_store, without_secret

#: On a remote store figures are written this often at most, but for the last ones.
_QUIET_SECONDS = 1.0
_DURATIONS_MAX = 30
State = Literal["waiting", "running", "done", "failed", "stopped"]


class ProcessorStatus(msgspec.Struct, kw_only=True):
    """What one processor has done in this run."""

    id: str
    kind: Kind
    inputs: list[str] = []
    outputs: list[str] = []
    state: State = "waiting"
    step: int | None = None
    steps: int = 0
    rows: int = 0
    step_rows: int = 0
    rows_per_second: float = 0.0
    step_milliseconds: int = 0
    #: Milliseconds of the last steps, the newest last.
    durations: list[int] = []
    #: First record of each input that was not read yet.
    read: dict[str, int] = {}
    #: First index of each output that is free, and records a second into it in the last step.
    written: dict[str, int] = {}
    written_per_second: dict[str, float] = {}
    #: Records that went to the error log, and steps in which no record could be processed.
    failed: int = 0
    failed_steps: int = 0
    restarts: int = 0
    error: str | None = None

    def state_now(self, *, running: bool) -> str:
        """Its state, given whether the pipeline is running: one that was killed can't say so."""
        return "killed" if self.state == "running" and not running else self.state


class Status(msgspec.Struct, kw_only=True):
    """What a run of a pipeline has done so far."""

    pipeline: str
    pid: int
    master: str
    started_at: datetime.datetime
    updated_at: datetime.datetime
    #: Where each log is, by its name.
    logs: dict[str, str] = {}
    processors: dict[str, ProcessorStatus]


class StatusFile:
    """Writes the status of a run. Safe from many threads."""

    def __init__(self, path: str, status: Status) -> None:
        folder, _, self._name = path.rpartition("/")
        self._files = files_at(folder)
        self._quiet_seconds = _QUIET_SECONDS if is_remote_store(path) else 0.0
        self._saved_at = 0.0
        self._lock = threading.Lock()
        self.status = status
        self.save()

    def of(self, processor_id: str) -> ProcessorStatus:
        return self.status.processors[processor_id]

    def note_duration(self, processor_id: str, milliseconds: int) -> None:
        """How long the last batch took, from its planning to Spark's own note of its end."""
        known = self.of(processor_id)
        known.step_milliseconds = milliseconds
        known.durations = [*known.durations, milliseconds][-_DURATIONS_MAX:]
        known.rows_per_second = known.step_rows * 1000 / max(milliseconds, 1)
        self.save(soon=True)

    def save(self, *, soon: bool = False) -> None:
        """Write it down; with `soon`, not if that was done a moment ago and costs a request.

        If that fails, the steps go on: figures are no records.
        """
        with self._lock:
            if soon and time.monotonic() - self._saved_at < self._quiet_seconds:
                return
            self._saved_at = time.monotonic()
            self.status.updated_at = datetime.datetime.now(datetime.UTC)
            data = msgspec.json.format(msgspec.json.encode(self.status))
            try:
                self._files.write(self._name, data, durable=False)
            except Exception as error:  # noqa: BLE001 - whatever the disk or the store says
                logger.warning("the status could not be written", error=str(error))


def read_status(path: str) -> Status:
    """The figures of the last run, of which `pid` says whether it is the present one."""
    folder, _, name = path.rpartition("/")
    try:
        return msgspec.json.decode(files_at(folder).read(name), type=Status)
    except FileNotFoundError:
        raise PipelineError(
            f"the pipeline has never run: there is no {path}; start it with"
            " 'pillarbox pipeline run'"
        ) from None


def first_status(pipeline: str, master: str, graph: Graph, ids: Collection[str]) -> Status:
    """The status of a run that is about to begin, of these processors."""
    now = datetime.datetime.now(datetime.UTC)
    return Status(
        pipeline=pipeline,
        pid=os.getpid(),
        master=master,
        started_at=now,
        updated_at=now,
        logs={log.name: without_secret(log.url) for log in graph.logs},
        processors={
            each.id: ProcessorStatus(
                id=each.id,
                kind=each.kind,
                inputs=list(each.input_names),
                outputs=graph.written_by(each),
            )
            for each in graph.processors
            if each.id in ids
        },
    )


def graph_of(status: Status) -> Graph:
    """The graph of a run, to be drawn without the code that it was declared in."""
    logs = [LogRef(name, url) for name, url in status.logs.items()]
    processors = [
        Processor(each.id, each.kind, lambda: None, tuple(each.inputs), tuple(each.outputs))
        for each in status.processors.values()
    ]
    return Graph(logs, processors)


def ends(graph: Graph) -> dict[str, int]:
    """The end index of every log that is in a directory and exists."""
    found = {}
    for log in graph.logs:
        try:
            reader = open_readable(log.url)
        except ImportError:  # a table, and nothing here to read it with
            continue
        if reader is not None:
            with reader:
                found[log.name] = reader.end_index
    return found


def labels(graph: Graph, status: Status, end: dict[str, int]) -> dict[tuple[str, str], str]:
    """For each edge of the graph: how far behind its reader is, or how fast it is written."""
    found = {}
    for each in graph.processors:
        known = status.processors.get(each.id)
        if known is None:
            continue
        for name in each.input_names:
            if name in end:
                behind = end[name] - known.read.get(name, 0)
                found[f"log:{name}", f"processor:{each.id}"] = f"lag {behind:,}"
        for name in graph.written_by(each):
            rate = known.written_per_second.get(name, 0.0)
            found[f"processor:{each.id}", f"log:{name}"] = f"{per_second(rate)}/s"
    return found


def per_second(rate: float) -> str:
    """A rate for people: with a decimal where a whole number would say too little."""
    return f"{rate:,.0f}" if rate >= 10 or rate == 0 else f"{rate:.1f}"
