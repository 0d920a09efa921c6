"""What a task sends to the driver: its records, compressed, in its commit message.

Only the driver writes to a log or a store on disk, so a task that nobody waits for any more can
do no harm, and an aborted batch leaves nothing behind.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
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
    """The records of one task by output, as Arrow streams, and the run that it belongs to."""

    def __init__(self, parts: Iterable[tuple[str, Any]] = ()) -> None:
        """Collect binary arrays, each with the name of its output."""
        context = TaskContext.get()
        self.run = (context.getLocalProperty(RUN) if context is not None else None) or ""
        self.rows = 0
        streams: dict[str, tuple[Any, Any]] = {}
        for name, records in parts:
            if records.null_count:
                raise OptionError("a row without a body can't be written; filter out such rows")
            if name not in streams:
                sink = pa.BufferOutputStream()
                streams[name] = sink, pa.ipc.new_stream(sink, _SCHEMA, options=_COMPRESSED)
            streams[name][1].write_batch(pa.record_batch([records], schema=_SCHEMA))
            self.rows += len(records)
        self._streams: dict[str, bytes] = {}
        for name, (sink, stream) in streams.items():
            stream.close()
            self._streams[name] = sink.getvalue().to_pybytes()

    def chunks(self, name: str) -> list[Any]:
        """The records for one output as Arrow arrays, in the order of the rows."""
        if name not in self._streams:
            return []
        found = pa.ipc.open_stream(self._streams[name]).read_all().column("record")
        return list(found.chunks)


def plain_records(outputs: Sequence[TaskOutput], names: Sequence[str]) -> list[bytes]:
    """What tasks wrote for these outputs."""
    return [
        record
        for name in names
        for each in outputs
        for chunk in each.chunks(name)
        for record in chunk.to_pylist()
    ]


def encoded_records(
    outputs: Sequence[TaskOutput], names: Sequence[str]
) -> Sequence[bytes] | EncodedRecords:
    """The same in the form in which a log keeps it, which is Arrow's.

    Rows never become Python objects, which took longer than all the rest of a commit.
    """
    chunks = [chunk for name in names for each in outputs for chunk in each.chunks(name)]
    total = sum(chunk.nbytes for chunk in chunks)
    if not any(map(len, chunks)) or total > FRAME_BYTES_MAX:
        return plain_records(outputs, names)  # nothing, or more than a frame can hold
    records = pa.concat_arrays(chunks)
    _, offsets, data = records.buffers()
    ends = memoryview(offsets).cast("B").cast("i")[records.offset :][: len(records) + 1]
    if ends[0] != 0:
        return plain_records(outputs, names)
    held = memoryview(data if data is not None else b"").cast("B")[: ends[-1]]
    return encode_offsets(ends, held, len(records), ends[-1])
