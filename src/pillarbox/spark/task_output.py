"""What a task sends to the driver: its records, compressed, in its commit message.

Only the driver writes to a log or a store on disk, so a task that nobody waits for any more can
do no harm, and an aborted batch leaves nothing behind.
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
    """The records of one task as an Arrow stream, and the run that it belongs to."""

    def __init__(self, parts: Iterable[Any] = ()) -> None:
        """Collect binary arrays."""
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
        """The records as Arrow arrays, in the order of the rows."""
        return list(pa.ipc.open_stream(self._stream).read_all().column("record").chunks)


def plain_records(outputs: Iterable[TaskOutput]) -> Iterator[bytes]:
    """What tasks wrote, in the order of the tasks."""
    for each in outputs:
        for chunk in each.chunks():
            yield from chunk.to_pylist()


def encoded_records(outputs: Sequence[TaskOutput]) -> Sequence[bytes] | EncodedRecords:
    """The same in the form in which a log keeps it, which is Arrow's.

    Rows never become Python objects, which took longer than all the rest of a commit.
    """
    chunks = [chunk for each in outputs for chunk in each.chunks()]
    total = sum(chunk.nbytes for chunk in chunks)
    if not any(map(len, chunks)) or total > FRAME_BYTES_MAX:
        return list(plain_records(outputs))  # nothing, or more than a frame can hold
    records = pa.concat_arrays(chunks)
    _, offsets, data = records.buffers()
    ends = memoryview(offsets).cast("B").cast("i")[records.offset :][: len(records) + 1]
    if ends[0] != 0:
        return list(plain_records(outputs))
    held = memoryview(data if data is not None else b"").cast("B")[: ends[-1]]
    return encode_offsets(ends, held, len(records), ends[-1])
