"""Live metrics of a pipeline, in a small file that the CLI and the dashboard read.

The process that runs the pipeline replaces the file atomically after steps. Lag is not stored: it
is computed from the logs when the status is shown.
"""

from __future__ import annotations

import contextlib
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
from pillarbox.spark.location import absolute_url, is_remote_store, without_secret

#: On a remote store the file is written at most this often, except for the final metrics.
_SAVE_SECONDS_MIN = 1.0
_DURATIONS_MAX = 30
State = Literal["waiting", "running", "done", "failed", "stopped"]


class ProcessorStatus(msgspec.Struct, kw_only=True):
    """The metrics of one processor in this run."""

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
    #: Durations of the last steps in milliseconds, oldest first.
    durations: list[int] = []
    #: The first index of each input that has not been read.
    read: dict[str, int] = {}
    #: The next index of each output, and the records per second written to it in the last step.
    written: dict[str, int] = {}
    written_per_second: dict[str, float] = {}
    #: Records that went to the error log, and steps in which no record could be processed.
    failed: int = 0
    failed_steps: int = 0
    restarts: int = 0
    error: str | None = None

    def state_now(self, *, running: bool) -> str:
        """Return the state: a killed run leaves "running" behind, which is then "killed"."""
        return "killed" if self.state == "running" and not running else self.state


class Status(msgspec.Struct, kw_only=True):
    """The metrics of a run of a pipeline."""

    pipeline: str
    pid: int
    master: str
    started_at: datetime.datetime
    updated_at: datetime.datetime
    #: The URL of each log, by name.
    logs: dict[str, str] = {}
    processors: dict[str, ProcessorStatus]


class StatusFile:
    """Writes the status of a run. Thread-safe."""

    def __init__(self, path: str, status: Status) -> None:
        folder, _, self._name = path.rpartition("/")
        self._files = files_at(folder)
        self._save_seconds_min = _SAVE_SECONDS_MIN if is_remote_store(path) else 0.0
        self._saved_at = 0.0
        self._lock = threading.Lock()
        self._noted: dict[str, int] = {}  # the last batch of each processor whose duration is known
        self.status = status
        self.save()

    def of(self, processor_id: str) -> ProcessorStatus:
        return self.status.processors[processor_id]

    def note_duration(self, processor_id: str, batch: int, milliseconds: int) -> None:
        """Record once how long a batch took, from planning to Spark's commit."""
        with self._lock:
            if batch <= self._noted.get(processor_id, -1):
                return
            self._noted[processor_id] = batch
        status = self.of(processor_id)
        status.step_milliseconds = milliseconds
        status.durations = [*status.durations, milliseconds][-_DURATIONS_MAX:]
        status.rows_per_second = status.step_rows * 1000 / max(milliseconds, 1)
        self.save(soon=True)

    def save(self, *, soon: bool = False) -> None:
        """Write the file; with `soon`, at most once per interval on a remote store.

        A failure is only logged: metrics must not stop the pipeline.
        """
        with self._lock:
            if soon and time.monotonic() - self._saved_at < self._save_seconds_min:
                return
            self._saved_at = time.monotonic()
            self.status.updated_at = datetime.datetime.now(datetime.UTC)
            data = msgspec.json.format(msgspec.json.encode(self.status))
            try:
                self._files.write(self._name, data, durable=False)
            except Exception as error:  # noqa: BLE001 - any error of the disk or the store
                logger.warning("the status could not be written", error=str(error))


def read_status(path: str) -> Status:
    """Return the status of the last run, which may still be running."""
    folder, _, name = path.rpartition("/")
    try:
        return msgspec.json.decode(files_at(folder).read(name), type=Status)
    except FileNotFoundError:
        raise PipelineError(
            f"the pipeline has never run: there is no {path}; start it with"
            " 'pillarbox pipeline run'"
        ) from None
    except msgspec.MsgspecError as error:  # it is not synced, so a power cut may empty it
        raise PipelineError(
            f"{path} can't be read ({error}); the next run of the pipeline replaces it"
        ) from error


def first_status(pipeline: str, master: str, graph: Graph, ids: Collection[str]) -> Status:
    """Return the initial status of a run of these processors."""
    now = datetime.datetime.now(datetime.UTC)
    return Status(
        pipeline=pipeline,
        pid=os.getpid(),
        master=master,
        started_at=now,
        updated_at=now,
        logs={log.name: without_secret(absolute_url(log.url)) for log in graph.logs},
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


def rename_in_status(path: str, old: str, new: str) -> None:
    """Show the metrics of a processor under its new id until the next run."""
    with contextlib.suppress(PipelineError):  # it never ran
        status = read_status(path)
        for known in status.processors.values():
            known.id = new if known.id == old else known.id
        status.processors = {known.id: known for known in status.processors.values()}
        StatusFile(path, status)


def graph_of(status: Status) -> Graph:
    """Return the graph of a run, to draw it without the code that declares it."""
    logs = [LogRef(name, url) for name, url in status.logs.items()]
    processors = [
        Processor(each.id, each.kind, lambda: None, tuple(each.inputs), tuple(each.outputs))
        for each in status.processors.values()
    ]
    return Graph(logs, processors)


def ends(graph: Graph) -> dict[str, int]:
    """Return the end index of every log that exists and is not on a server."""
    result = {}
    for log in graph.logs:
        try:
            reader = open_readable(log.url)
        except ImportError:  # a table, and the package to read it is not installed
            continue
        if reader is not None:
            with reader:
                result[log.name] = reader.end_index
    return result


def labels(graph: Graph, status: Status, end: dict[str, int]) -> dict[tuple[str, str], str]:
    """Return the label of each edge of the graph: the lag of a reader, or the write rate."""
    result = {}
    for each in graph.processors:
        metrics = status.processors.get(each.id)
        if metrics is None:
            continue
        for name in each.input_names:
            if name in end:
                lag = end[name] - metrics.read.get(name, 0)
                result[f"log:{name}", f"processor:{each.id}"] = f"lag {lag:,}"
        for name in graph.written_by(each):
            rate = metrics.written_per_second.get(name, 0.0)
            result[f"processor:{each.id}", f"log:{name}"] = f"{per_second(rate)}/s"
    return result


def per_second(rate: float) -> str:
    """Format a rate, with one decimal below 10."""
    return f"{rate:,.0f}" if rate >= 10 or rate == 0 else f"{rate:.1f}"
