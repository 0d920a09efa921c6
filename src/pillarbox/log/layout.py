"""The header block of a segment file, and the index by which readers seek in it.

The header has a 4 KiB block of its own, synced before the file gets its name, so no later write
can tear it.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Iterator
from typing import NamedTuple

import google_crc32c

from pillarbox.log.errors import LogFormatError
from pillarbox.log.frame import FrameCodec

SEGMENT_MAGIC = b"PBXSEG\0\0"
#: Format 1 did not name the previous segment.
FORMAT = 2
BLOCK_BYTES = 4096

_HEADER = struct.Struct("<8sHHI16sQQQqQ")


class SegmentHeader(NamedTuple):
    """The log of the segment, and its first index."""

    log_id: bytes
    epoch: int
    base_index: int
    synced_index: int
    created_ns: int
    #: The epoch of the previous segment, 0 if this is the first; None in format 1.
    previous_epoch: int | None = 0

    @property
    def format(self) -> int:
        return 1 if self.previous_epoch is None else FORMAT

    @property
    def codec(self) -> FrameCodec:
        """Reads and writes the frames of this segment."""
        return FrameCodec(self.log_id, self.epoch)

    def encode(self) -> bytes:
        fields = _HEADER.pack(
            SEGMENT_MAGIC,
            self.format,
            0,
            0,
            self.log_id,
            self.epoch,
            self.base_index,
            self.synced_index,
            self.created_ns,
            self.previous_epoch or 0,
        )
        block = fields.ljust(BLOCK_BYTES - 4, b"\0")
        return block + int(google_crc32c.value(block)).to_bytes(4, "little")


def decode_segment_header(block: bytes, path: str) -> SegmentHeader | None:
    """Return the header, or None if the block is damaged. `LogFormatError` for a newer format."""
    if len(block) < BLOCK_BYTES:
        return None
    body, crc = block[: BLOCK_BYTES - 4], block[BLOCK_BYTES - 4 : BLOCK_BYTES]
    if int.from_bytes(crc, "little") != google_crc32c.value(body):
        return None
    magic, version = _HEADER.unpack_from(body)[:2]
    if magic != SEGMENT_MAGIC:
        return None
    if not 1 <= version <= FORMAT:
        raise LogFormatError(
            f"{path} is in log format {version}, and this Pillarbox reads up to format {FORMAT};"
            " upgrade Pillarbox to open it"
        )
    return _decode_fields(body)


def guess_segment_header(block: bytes) -> Iterator[SegmentHeader]:
    """What a damaged block may have contained, most likely first; the frames decide."""
    block = block.ljust(BLOCK_BYTES, b"\0")
    yield _decode_fields(block)
    for bit in range(_HEADER.size * 8):
        flipped = bytearray(block[: _HEADER.size])
        flipped[bit // 8] ^= 1 << bit % 8
        yield _decode_fields(bytes(flipped))


def _decode_fields(block: bytes) -> SegmentHeader:
    _, version, _, _, log_id, epoch, base, synced, created, previous = _HEADER.unpack_from(block)
    known = previous if version >= FORMAT else None
    return SegmentHeader(log_id, epoch, base, synced, created, known)


def index_stride(capacity: int) -> int:
    """Return the bytes between index entries: at most 4,096 entries, at least 1 KiB apart."""
    return max(1024, min(16384, capacity // 64), capacity // 4096)


class FrameIndex:
    """The offsets of some frames: one entry about every `stride` bytes, in order."""

    __slots__ = ("first_indices", "offsets", "stride", "times")

    def __init__(self, stride: int) -> None:
        self.stride = stride
        self.first_indices: list[int] = []
        self.times: list[int] = []
        self.offsets: list[int] = []

    def add(self, first_index: int, time_ns: int, offset: int) -> None:
        """Add a frame, unless it is too close to the last entry, or before it."""
        offsets = self.offsets
        if offsets and offset < offsets[-1] + self.stride:
            return
        self.times.append(time_ns)
        offsets.append(offset)
        # Last, because readers on other threads bisect this list without a lock.
        self.first_indices.append(first_index)

    def __iter__(self) -> Iterator[tuple[int, int, int]]:
        """Return the entries: first index, time and offset."""
        return zip(self.first_indices, self.times, self.offsets, strict=True)

    def floor_of_index(self, index: int) -> int:
        """Return the offset of the last entry at or before `index`."""
        return self.range_of_index(index)[0]

    def range_of_index(self, index: int) -> tuple[int, int | None]:
        """Return the offsets between which `index` is; the second is None after the last entry."""
        position = bisect_right(self.first_indices, index)
        start = self.offsets[position - 1] if position else BLOCK_BYTES
        return start, self.offsets[position] if position < len(self.first_indices) else None

    def floor_of_time(self, time_ns: int) -> int:
        """Return the offset of the last entry older than `time_ns`."""
        position = bisect_right(self.times, time_ns - 1, 0, len(self.first_indices))
        return self.offsets[position - 1] if position else BLOCK_BYTES
