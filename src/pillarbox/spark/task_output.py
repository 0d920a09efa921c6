"""The commit message of a task: its records, compressed.

Only the driver writes to a log or a store on disk, so an abandoned task can do no harm, and an
aborted batch leaves nothing behind.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage

from pillarbox.log.frame import FRAME_BYTES_MAX, EncodedRecords, encode_offsets
from pillarbox.spark.errors import OptionError

RUN = "spark.jobGroup.id"  # the local property with the run of a query
_SCHEMA = pa.schema([("record", pa.binary())])
_COMPRESSED = pa.ipc.IpcWriteOptions(compression="lz4")


class TaskOutput(WriterCommitMessage):
    """The records of one task as an Arrow stream, and the run of the task."""

    def __init__(self, parts: Iterable[Any] = ()) -> None:
        """Collect binary Arrow arrays."""
        context = TaskContext.get()
        self.run = (context.getLocalProperty(RUN) if context is not None else None) or ""
        self.rows = 0
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, _SCHEMA, options=_COMPRESSED) as stream:
            for records in parts:
                if records.null_count:
                    raise OptionError("a row without a body can't be written; filter out such rows")
                stream.write_batch(pa.record_batch([records], schema=_SCHEMA))
                self.rows += len(records)
        self._stream: bytes = sink.getvalue().to_pybytes()

    def chunks(self) -> list[Any]:
        """Return the records as Arrow arrays, in row order."""
        return list(pa.ipc.open_stream(self._stream).read_all().column("record").chunks)


def plain_records(outputs: Iterable[TaskOutput]) -> Iterator[bytes]:
    """Yield the records of the tasks, in task order."""
    for each in outputs:
        for chunk in each.chunks():
            yield from chunk.to_pylist()


def encoded_records(outputs: Sequence[TaskOutput]) -> Sequence[bytes] | EncodedRecords:
    """Return the records in the format of a log frame, which is Arrow's.

    Rows never become Python objects, which took longer than the rest of a commit.
    """
    chunks = [chunk for each in outputs for chunk in each.chunks()]
    total = sum(chunk.nbytes for chunk in chunks)
    if not any(map(len, chunks)) or total > FRAME_BYTES_MAX:
        return list(plain_records(outputs))  # no records, or more than a frame can hold
    records = pa.concat_arrays(chunks)
    _, offsets, data = records.buffers()
    ends = memoryview(offsets).cast("B").cast("i")[records.offset :][: len(records) + 1]
    if ends[0] != 0:
        return list(plain_records(outputs))
    payload = memoryview(data if data is not None else b"").cast("B")[: ends[-1]]
    return encode_offsets(ends, payload, len(records), ends[-1])
