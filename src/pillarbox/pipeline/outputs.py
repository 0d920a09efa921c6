"""The logs that a processor writes: Spark's tasks write files, and the driver commits them.

Files of an interrupted step are in no table; the next run removes them. Files are durable before
they are committed, and a step's failures are committed before its outputs: a step that is in its
outputs is complete.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pillarbox.pipeline.columns import may_lack, split
from pillarbox.pipeline.graph import ERRORS
from pillarbox.pipeline.step_result import OutputRows, StepResult, union
from pillarbox.spark.steps import Step
from pillarbox.spark.table import TableLog
from pillarbox.spark.table_files import NewFile, write_parquet

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class Outputs:
    """The tables of one processor: its outputs by name, and its error log."""

    def __init__(self, locations: Mapping[str, str], errors: str) -> None:
        self._locations = {**locations, ERRORS: errors}
        self._names = list(locations)
        self._tables: dict[str, TableLog] = {}

    def table(self, name: str) -> TableLog:
        if name not in self._tables:
            self._tables[name] = TableLog(self._locations[name])
        return self._tables[name]

    def next_indices(self) -> dict[str, int]:
        """Return the index that the next row of each output will have."""
        return {name: self._refreshed(name).end_index for name in self._names}

    def _refreshed(self, name: str) -> TableLog:
        table = self.table(name)
        table.refresh()
        return table

    def take_over(self, writer: str) -> dict[str, int]:
        """Fence earlier runs, and return the epoch to write with for each output.

        Then remove the files of interrupted steps, which can no longer be committed.
        """
        epochs = {name: self.table(name).claim(writer) for name in self._locations}
        self._remove_uncommitted(writer)
        return epochs

    def _remove_uncommitted(self, writer: str) -> None:
        for name in self._locations:
            table = self._refreshed(name)
            files = [*(each.name for each in table.files()), *table.removed()]
            committed = {file.partition("/")[0] for file in files}
            for entry in table.storage.names():
                if entry.startswith(f"{writer},") and entry not in committed:
                    table.storage.remove(entry)

    def write(
        self, result: StepResult, step: Step, epochs: Mapping[str, int], *, check: bool
    ) -> None:
        """Write the result of a step; with `check`, skip outputs that already have it."""
        names = [n for n in self._names if not (check and self._refreshed(n).holds(step))]
        failed: list[DataFrame] = []
        files: dict[str, list[NewFile]] = {}
        for name in names:
            files[name], rejected = self._save(name, result.outputs[name], step)
            failed += rejected
        if names:
            self.write_failures([*failed, *result.failures()], step, epochs, check=check)
        for name in names:
            self.table(name).commit(files[name], step, epochs.get(name), check=check)

    def write_failures(
        self, failed: Sequence[DataFrame], step: Step, epochs: Mapping[str, int], *, check: bool
    ) -> None:
        if not failed or (check and self._refreshed(ERRORS).holds(step)):
            return
        files = self._written(ERRORS, union(failed), step)
        if files:
            self.table(ERRORS).commit(files, step, epochs.get(ERRORS), check=check)

    def _save(
        self, name: str, output: OutputRows, step: Step
    ) -> tuple[list[NewFile], list[DataFrame]]:
        """Write the files of an output; return them and the failures for the error log.

        The statistics of the files show whether rows may lack required values. Only then are
        the rows checked, and the files written again without the failures.
        """
        files = self._written(name, output.rows, step)
        if not any(may_lack(output.required, each.with_nulls) for each in files):
            return files, []
        failed, good = split(output.rows, output.required, name, step.processor)
        if failed.isEmpty():
            return files, []
        for part in {file.name.partition("/")[0] for file in files}:
            self.table(name).storage.remove(part)
        return self._written(name, good, step), [failed]

    def _written(self, name: str, rows: DataFrame, step: Step) -> list[NewFile]:
        folder = f"{step.writer},{step.number}-{uuid.uuid4().hex}"
        return write_parquet(rows, self.table(name).storage, folder)
