"""Spark's own figures about its batches, taken into the status of a run."""

from __future__ import annotations

from typing import Any

from pyspark.sql.streaming.listener import StreamingQueryListener

from pillarbox.pipeline.status import StatusFile


def query_name(pipeline: str, processor_id: str) -> str:
    return f"{pipeline}.{processor_id}"


def take(status: StatusFile, processor_id: str, milliseconds: int) -> None:
    """How long the last batch took from its planning to Spark's own note of its end."""
    known = status.of(processor_id)
    known.step_milliseconds = milliseconds
    known.rows_per_second = known.step_rows * 1000 / max(milliseconds, 1)
    status.save(soon=True)


def listener_for(pipeline: str, status: StatusFile) -> StreamingQueryListener:
    """Takes note of every batch of this pipeline's queries."""
    return _Listener(pipeline, status)


class _Listener(StreamingQueryListener):
    def __init__(self, pipeline: str, status: StatusFile) -> None:
        self._pipeline = pipeline
        self._status = status

    def onQueryStarted(self, event: Any) -> None:
        """Nothing to do: the runner has started it."""

    def onQueryProgress(self, event: Any) -> None:
        progress = event.progress
        pipeline, _, processor_id = (progress.name or "").partition(".")
        if pipeline != self._pipeline or processor_id not in self._status.status.processors:
            return
        take(self._status, processor_id, progress.batchDuration)

    def onQueryIdle(self, event: Any) -> None:
        """Nothing to tell."""

    def onQueryTerminated(self, event: Any) -> None:
        """Nothing to do: the runner waits for the query itself."""
