"""Generator sources: appends the bodies that a generator yields to a log.

There is no recovery: after a restart the generator runs from its beginning, and its own code
decides where to continue (R84). It is stopped between two records.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pillarbox.codec import codec_for
from pillarbox.log import Log
from pillarbox.pipeline.graph import Processor
from pillarbox.pipeline.rows import row_of
from pillarbox.pipeline.status import StatusFile
from pillarbox.spark.location import is_remote_store
from pillarbox.spark.table import TableLog

if TYPE_CHECKING:
    from pillarbox.pipeline.pipeline import Pipeline


def generate(
    pipeline: Pipeline, processor: Processor, status: StatusFile, stopping: threading.Event
) -> None:
    """Append the bodies that the generator yields, until it ends or `stopping` is set."""
    (name,) = processor.output_names
    encode = codec_for(pipeline.graph.log(name).body_type).encode
    progress = status.of(processor.id)
    records = processor.function()
    with _open(pipeline, name) as log:
        try:
            for body in records:
                bodies = body if isinstance(body, list) else [body]
                log.append_many([encode(each) for each in bodies])
                progress.steps += 1
                progress.rows += len(bodies)
                progress.written[name] = log.end_index
                if stopping.is_set():
                    break
        finally:
            records.close()


def _open(pipeline: Pipeline, name: str) -> Log | _TypedLog:
    location = pipeline.directory(name)
    if is_remote_store(location):
        return _TypedLog(location, pipeline.graph.log(name).body_type)
    return Log.open(location)


class _TypedLog(TableLog):
    """A typed log with the `append_many` of a row log; each call is a commit."""

    def __init__(self, location: str, body_type: Any) -> None:
        super().__init__(location)
        self._body_type = body_type

    def append_many(self, bodies: Sequence[bytes]) -> None:
        self.append([row_of(body, self._body_type) for body in bodies], {})
