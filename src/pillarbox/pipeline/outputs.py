"""The logs that a processor writes: Spark's tasks write files, the driver enters them.

What an interrupted step left behind is in no table; the next run removes it. Files are durable
before they are entered, and all outputs of a step after its failures: a step that is in its
outputs is done.
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
    """The tables of one processor: its outputs by their names, and its error log."""

    def __init__(self, locations: Mapping[str, str], errors: str) -> None:
        self._locations = {**locations, ERRORS: errors}
        self._names = list(locations)
        self._tables: dict[str, TableLog] = {}

    def table(self, name: str) -> TableLog:
        if name not in self._tables:
            self._tables[name] = TableLog(self._locations[name])
        return self._tables[name]

    def next_indices(self) -> dict[str, int]:
        """The first index of each output that is free."""
        return {name: self._refreshed(name).end_index for name in self._names}

    def failed_end(self) -> int:
        """How many records the error log has, as far as this process knows."""
        return self.table(ERRORS).end_index

    def refresh_failed(self) -> None:
        """Look at the error log again, to which another process writes."""
        self.table(ERRORS).refresh()

    def _refreshed(self, name: str) -> TableLog:
        table = self.table(name)
        table.refresh()
        return table

    def take_over(self, writer: str) -> dict[str, int]:
        """Keep earlier runs from writing any more; the epoch to write with, by output.

        What interrupted steps have left is removed, when nobody can enter it any more.
        """
        epochs = {name: self.table(name).claim(writer) for name in self._locations}
        self._clear(writer)
        return epochs

    def _clear(self, writer: str) -> None:
        for name in self._locations:
            table = self._refreshed(name)
            known = {each.name.partition("/")[0] for each in table.files()}
            for entry in table.storage.names():
                if entry.startswith(f"{writer},") and entry not in known:
                    table.storage.remove(entry)

    def write(
        self, product: StepResult, step: Step, epochs: Mapping[str, int], *, check: bool
    ) -> None:
        """Write what a step made; with `check`, what is there already is left out."""
        names = [n for n in self._names if not (check and self._refreshed(n).holds(step))]
        failed: list[DataFrame] = []
        files: dict[str, list[NewFile]] = {}
        for name in names:
            files[name], lost = self._save(name, product.outputs[name], step)
            failed += lost
        if names:
            self.write_failures([*failed, *product.failures()], step, epochs, check=check)
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
        self, name: str, made: OutputRows, step: Step
    ) -> tuple[list[NewFile], list[DataFrame]]:
        """The files of an output, and the rows for the error log that it can't take.

        Whether there are any, the files themselves tell.
        """
        files = self._written(name, made.rows, step)
        if not any(may_lack(made.required, each.with_nulls) for each in files):
            return files, []
        failed, good = split(made.rows, made.required, name, step.processor)
        if failed.isEmpty():
            return files, []
        for part in {file.name.partition("/")[0] for file in files}:
            self.table(name).storage.remove(part)
        return self._written(name, good, step), [failed]

    def _written(self, name: str, rows: DataFrame, step: Step) -> list[NewFile]:
        folder = f"{step.writer},{step.number}-{uuid.uuid4().hex}"
        return write_parquet(rows, self.table(name).storage, folder)
