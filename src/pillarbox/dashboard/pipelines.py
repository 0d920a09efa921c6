"""Pipelines for the dashboard, read from the status files of their runs."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from pillarbox.log import LogError
from pillarbox.pipeline import drawing
from pillarbox.pipeline.errors import PipelineError
from pillarbox.pipeline.failures import Failure, failures, redrive
from pillarbox.pipeline.paths import Paths
from pillarbox.pipeline.running import is_running
from pillarbox.pipeline.status import ProcessorStatus, Status, ends, graph_of, labels, read_status
from pillarbox.spark.location import location_of
from pillarbox.spark.table import is_table, table_at

_FAILED_MAX = 50  # failed records on one page


class Failures(NamedTuple):
    """Failed records of a processor, newest first, each with its index in the error log."""

    records: list[tuple[int, Failure]]
    total: int
    can_redrive: bool  # False for typed logs, which need the code of the pipeline


class Summary(NamedTuple):
    """The state of one pipeline."""

    status: Status
    lags: dict[str, int]  # by processor: unread records of its inputs
    drawing: str
    running: bool
    path: str  # directory of the pipeline

    @property
    def name(self) -> str:
        return self.status.pipeline

    @property
    def processors(self) -> list[ProcessorStatus]:
        return list(self.status.processors.values())

    @property
    def lag(self) -> int:
        return sum(self.lags.values())

    @property
    def errors(self) -> int:
        return sum(processor.error is not None for processor in self.processors)

    @property
    def failed(self) -> int:
        """Records that went to error logs."""
        return sum(processor.failed for processor in self.processors)

    def failures(self, processor_id: str) -> Failures:
        """Return the last failed records of a processor; raise PipelineError if it is unknown."""
        processor = graph_of(self.status).processor(processor_id)
        path = Paths(self.path).errors(processor_id)
        end = table.end_index if (table := table_at(path)) is not None else 0
        records = list(failures(path, max(0, end - _FAILED_MAX)))
        logs = (location_of(self.status.logs[name]) for name in processor.input_names)
        typed = any(log is None or is_table(log) for log in logs)
        return Failures(records[::-1], end, can_redrive=not typed)

    def redrive(self, processor_id: str) -> int:
        """Append the failed records of a processor to the logs that they came from."""
        if not self.failures(processor_id).can_redrive:
            raise PipelineError(
                "redriving into a typed log needs the pipeline's code: use"
                f" 'pillarbox pipeline errors MODULE:PIPELINE {processor_id} --redrive'"
            )
        path = Paths(self.path).errors(processor_id)
        return redrive(graph_of(self.status), processor_id, path)


class Pipelines:
    """Finds pipelines in directories."""

    def __init__(self, folders: Sequence[str | os.PathLike[str]]) -> None:
        self._folders = [Path(folder) for folder in folders]

    def summaries(self) -> list[Summary]:
        found = (_read(file) for folder in self._folders for file in _status_files(folder))
        return [summary for summary in found if summary is not None]

    def find(self, name: str) -> Summary | None:
        return next((each for each in self.summaries() if each.name == name), None)


def _status_files(folder: Path) -> list[Path]:
    return sorted({*folder.glob("status.json"), *folder.glob("*/status.json")})


def _read(file: Path) -> Summary | None:
    try:
        status = read_status(str(file))
        graph = graph_of(status)
        end = ends(graph)
        picture = drawing.svg(graph, labels(graph, status, end))
        running = is_running(Paths(str(file.parent)))
    except (OSError, msgspec.MsgspecError, PipelineError, LogError):
        return None  # not a status file, or being deleted
    lags = {
        each.id: sum(
            max(0, end[name] - each.read.get(name, 0)) for name in each.inputs if name in end
        )
        for each in status.processors.values()
    }
    return Summary(status, lags, picture, running, str(file.parent))
