"""Queries through Spark Connect: the driver is a server, and a process there runs the batches.

That process shares a file system with this one and has Pillarbox installed. Before each batch it
checks that this process still runs the pipeline; it writes the maps itself, and this process
learns of finished batches from Spark. Streams don't see files that were sent to the server
(`ship`), so the pickled batch function carries the modules of the pipeline.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pillarbox.pipeline.backing import open_backing
from pillarbox.pipeline.batch import BatchJob, BatchRunner
from pillarbox.pipeline.graph import ERRORS
from pillarbox.pipeline.outputs import Outputs
from pillarbox.pipeline.paths import Paths
from pillarbox.pipeline.plan import INPUT
from pillarbox.pipeline.query import Query
from pillarbox.pipeline.references import Carried, carried, reference_to, resolved
from pillarbox.pipeline.running import batch_for_run
from pillarbox.spark.errors import OptionError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_POLL_SECONDS = 0.5
_SOURCE = re.compile(r"^[ :+|-]*~?StreamingRelation")
_OURS = re.compile(rf", pillarbox, .*(?:\[|, ){INPUT}=([\w-]+)(?:, |\])")


class ConnectQuery(Query):
    """A Spark query of a processor, with the driver in a Spark Connect server."""

    native = False

    def __init__(
        self, *arguments: Any, token: str, files: Mapping[str, bytes], **settings: Any
    ) -> None:
        super().__init__(*arguments, **settings)
        self._token = token
        self._files = files
        self._last_batch = -1

    def portable(self, thing: Any) -> Carried:
        return carried(thing, self._files)

    def batch_function(self, job: BatchJob) -> Callable[[DataFrame, int], None]:
        self._batch_job = job
        self.status.of(self.processor.id).written = self.written.next_indices()
        return RemoteBatches(job, self.pipeline.paths, self._token, self._files)

    def wait_for_end(self, active: Any) -> None:
        try:
            while not active.awaitTermination(_POLL_SECONDS):
                self._catch_up(active)
        except Exception:
            with contextlib.suppress(Exception):  # report the error that ended the query instead
                self._catch_up(active)
            raise
        self._catch_up(active)

    def _catch_up(self, active: Any) -> None:
        """Add the batches that Spark has reported since the last call to the status."""
        self.written.table(ERRORS).refresh()  # another process writes it
        before, seconds = dict(self.status.of(self.processor.id).written), 0.0
        for progress in active.recentProgress:
            if progress.batchId > self._last_batch and "addBatch" in progress.durationMs:
                self._last_batch = progress.batchId
                seconds += progress.batchDuration / 1000
                with contextlib.suppress(OptionError):  # Spark has already deleted its offsets
                    self.note(self._batch_job.step(progress.batchId), before, seconds)
                    duration = progress.batchDuration
                    self.status.note_duration(self.processor.id, progress.batchId, duration)

    def inputs_in_plan(self, rows: DataFrame) -> list[str | None]:
        plan: Any = rows
        return inputs_in_text(plan._explain_string(extended=True))


def inputs_in_text(plans: str) -> list[str | None]:
    """Return the input that each source of a query reads, from the text of Spark's plans."""
    analyzed = plans.partition("== Analyzed Logical Plan ==")[2].partition("\n== ")[0]
    leaves = [line for line in analyzed.splitlines() if _SOURCE.search(line)]
    matches = [_OURS.search(line) for line in leaves]
    return [match and match[1] for match in matches]


class RemoteBatches:
    """Runs batches in a process of the server, which may lack the pipeline's modules."""

    def __init__(self, job: BatchJob, paths: Paths, token: str, files: Mapping[str, bytes]) -> None:
        self._paths = paths
        self._token = token
        self._directory = os.getcwd()
        # Without types: the server decodes nothing, and a Struct can't be pickled by value.
        inputs = tuple(replace(log, body_type=None) for log in job.inputs)
        deliver = reference_to(job.deliver)
        self._job = carried(replace(job, inputs=inputs, deliver=deliver), files)
        self._runner: BatchRunner | None = None

    def __call__(self, rows: DataFrame, batch_id: int) -> None:
        with batch_for_run(self._paths, self._token):
            if self._runner is None:
                self._runner = self._unpacked()
            self._runner.run(rows, self._runner.job.step(batch_id))

    def _unpacked(self) -> BatchRunner:
        with contextlib.suppress(OSError):
            os.chdir(self._directory)  # relative paths in the pipeline's modules start here
        job: BatchJob = resolved(self._job)
        job = replace(job, deliver=resolved(job.deliver))
        backing = open_backing(self._paths.backing, self._token)
        return BatchRunner(job, backing, Outputs(job.outputs, job.errors))
