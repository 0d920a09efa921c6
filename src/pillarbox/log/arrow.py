"""Reads a log as Arrow record batches, mapped from its segments without a copy.

The only module of the log that imports pyarrow (`pip install 'pillarbox[arrow]'`). A frame on
disk is an Arrow binary array, so there is a Python step per frame, not per record. A batch keeps
the mapping of its file, and so a shared lock, alive: the file is not recycled meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from itertools import accumulate, pairwise
from typing import Any

from pillarbox.extras import extra
from pillarbox.log.directory import LogDirectory
from pillarbox.log.errors import LogCorruptError, LogIndexError
from pillarbox.log.frame import DATA, FOOTER, HEADER_BYTES, FrameHeader, offsets_bytes
from pillarbox.log.segments import Catalog, Segment, open_shared

with extra("arrow", "reading a log as Arrow"):
    import pyarrow as pa
    import pyarrow.compute as pc

_FIELDS: list[Any] = [
    pa.field("index", pa.int64(), nullable=False),
    pa.field("time", pa.timestamp("ns", "UTC"), nullable=False),
    pa.field("record", pa.binary(), nullable=False),
]
SCHEMA = pa.schema(_FIELDS)
_BINARY = pa.binary()
RUN_BYTES = 8 << 20
ROWS_WORTH_A_BATCH = 512


def read_batches(
    directory: LogDirectory, catalog: Catalog, first_index: int, stop: int
) -> Iterator[Any]:
    """Yield record batches of the records from `first_index` up to `stop`."""
    segments = catalog.segments
    bases = [*(segment.base_index for segment in segments), stop]
    if first_index < min(bases[0], stop):
        raise LogIndexError(directory.path, first_index, bases[0], stop)
    for segment, (base, end) in zip(segments, pairwise(bases), strict=True):
        if first_index < end and base < stop:
            try:
                yield from read_segment(directory, segment, first_index, stop)
            except FileNotFoundError:  # dropped by retention
                index = max(first_index, base)
                raise LogIndexError(directory.path, index, end, stop) from None


def read_segment(
    directory: LogDirectory, segment: Segment, first_index: int, stop: int
) -> Iterator[Any]:
    """Yield record batches of the records of one segment from `first_index` up to `stop`.

    Raises FileNotFoundError if retention has dropped the segment.
    """
    disk, handle = directory.disk, open_shared(directory, segment)
    try:
        file = pa.py_buffer(disk.map(handle, disk.size(handle)))
    finally:
        disk.close(handle)
    for run in _runs(_frames(file, segment, first_index, stop)):
        yield from _batches(file, run, first_index, stop)


def _runs(frames: Iterator[FrameHeader]) -> Iterator[list[FrameHeader]]:
    """Yield groups of consecutive frames, of some megabytes each."""
    run: list[FrameHeader] = []
    size = 0
    for frame in frames:
        if run and (size > RUN_BYTES or frame.first_index != run[-1].end_index):
            yield run
            run, size = [], 0
        run.append(frame)
        size += frame.payload_bytes
    if run:
        yield run


def _frames(file: Any, segment: Segment, index: int, stop: int) -> Iterator[FrameHeader]:
    """Yield the checked data frames of a segment that hold records from `index` up to `stop`."""
    codec = segment.header.codec
    offset = segment.index.floor_of_index(index)
    end = index
    while end < stop:
        header = codec.frame_at(file, offset, offset)
        if header is None:
            what = "a confirmed frame is missing, truncated, or fails its checksum"
            raise LogCorruptError(segment.name, what, offset, end)
        if header.kind == FOOTER:
            return
        offset = header.end_offset
        end = max(end, header.end_index)
        if header.kind == DATA and end > index:
            yield header


def _batches(file: Any, run: list[FrameHeader], start: int, stop: int) -> Iterator[Any]:
    """Yield consecutive frames as record batches that use the pages of the file.

    Many small frames are copied into one batch, as that is faster than many batches.
    """
    records = pa.chunked_array([_records(file, frame) for frame in run], pa.binary())
    if len(records) < ROWS_WORTH_A_BATCH * len(run):
        records = pa.chunked_array([pa.concat_arrays(records.chunks)])
    first = run[0].first_index
    columns = [_indices(first, len(records)), _times(run), records]
    table = pa.Table.from_arrays(columns, schema=SCHEMA)
    low, high = max(start - first, 0), min(stop - first, len(records))
    yield from table.slice(low, high - low).to_batches()


def _records(file: Any, frame: FrameHeader) -> Any:
    start = frame.offset + HEADER_BYTES
    offsets = file.slice(start, (frame.count + 1) * 4)
    data = file.slice(start + offsets_bytes(frame.count), frame.data_bytes)
    return pa.BinaryArray.from_buffers(_BINARY, frame.count, [None, offsets, data])


def _times(run: list[FrameHeader]) -> Any:
    """Return the time of each record, computed per frame."""
    ends = pa.array(accumulate(frame.count for frame in run), pa.int32())
    of_frames = pa.array([frame.time_ns for frame in run], SCHEMA.field("time").type)
    runs: Any = pa.RunEndEncodedArray.from_arrays(ends, of_frames)
    return pc.call_function("run_end_decode", [runs])


def _indices(first: int, count: int) -> Any:
    """`first, first + 1, ...` without a loop."""
    return pc.add(_steps(1 << count.bit_length()).slice(0, count), pa.scalar(first, pa.int64()))


@lru_cache(maxsize=4)
def _steps(count: int) -> Any:
    ones = pa.repeat(pa.scalar(1, pa.int64()), count)
    return pc.cumulative_sum(ones, start=pa.scalar(-1, pa.int64()))
