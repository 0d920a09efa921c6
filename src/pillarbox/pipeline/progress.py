"""Spark's own figures about its batches, taken into the status of a run."""

from __future__ import annotations

from typing import Any

from pyspark.sql.streaming.listener import StreamingQueryListener

from pillarbox.pipeline.status import StatusFile


def query_name(pipeline: str, processor_id: str) -> str:
    return f"{pipeline}.{processor_id}"


class ProgressListener(StreamingQueryListener):
    """Notes the duration of every batch of a pipeline's queries."""

    def __init__(self, pipeline: str, status: StatusFile) -> None:
        self._pipeline = pipeline
        self._status = status

    def onQueryProgress(self, event: Any) -> None:
        progress = event.progress
        pipeline, _, processor_id = (progress.name or "").partition(".")
        if pipeline == self._pipeline and processor_id in self._status.status.processors:
            self._status.note_duration(processor_id, progress.batchDuration)

    def onQueryStarted(self, event: Any) -> None:
        """The runner has started it."""

    def onQueryIdle(self, event: Any) -> None:
        """Nothing to note."""

    def onQueryTerminated(self, event: Any) -> None:
        """The runner waits for the query itself."""
