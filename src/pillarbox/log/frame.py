"""A frame: one group of records, in the layout of Arrow, with one checksum.

    header (64 bytes) | int32 offsets, count + 1, padded to 8 | the records' bytes, padded to 8

The CRC32C covers the header, the payload, the log id, the epoch of the segment and the offset in
the file. So a frame from an earlier use of a recycled file, from another log, or inside a record
is never valid here. `synced_index` is how far the log was on disk when the frame was written;
recovery needs it to tell a torn tail from damage.
"""

from __future__ import annotations

import itertools
import struct
from array import array
from collections.abc import Sequence
from typing import Any, TypeAlias

import google_crc32c
import msgspec

#: Bytes, a mapping of a file, or an Arrow buffer.
Buffer: TypeAlias = Any

MAGIC = b"PBXF"
FORMAT = 1
HEADER_BYTES = 64
ALIGN_BYTES = 8
MARK_OFFSET = 8
#: int32 offsets limit what one frame may hold; this stays well below 2 GiB.
FRAME_BYTES_MAX = 1 << 30

DATA = 1
FOOTER = 2
COMMIT = 3
#: Replaces records that a repair could not save: it has their indices and no bytes.
LOST = 4
_KINDS = frozenset((DATA, FOOTER, COMMIT, LOST))
#: Flag of a data frame whose payload ends with a commit.
COMMITTING = 1

# magic, format, kind, flags, epoch, payload length, first index, time, synced index, count,
# data length, zero; the file offset follows for the checksum only; then the checksum.
_FIELDS = struct.Struct("<4sBBHIIQqQIIQI")
_CHECKED = struct.Struct("<4sBBHIIQqQIIQIQ")
_CRC = struct.Struct("<I")
_WALK = struct.Struct("<12xIQ16xI")
_UNCHECKED_BYTES = HEADER_BYTES - _CRC.size
_ONE_OFFSETS = struct.Struct("<ii")
_PADDING = (b"", b"\0" * 7, b"\0" * 6, b"\0" * 5, b"\0" * 4, b"\0" * 3, b"\0" * 2, b"\0")
assert _FIELDS.size == _UNCHECKED_BYTES

_extend = google_crc32c.extend


class FrameHeader(msgspec.Struct, frozen=True, gc=False):
    """The header of a frame; `offset` is that of the frame in its file."""

    kind: int
    offset: int
    payload_bytes: int
    first_index: int
    time_ns: int
    synced_index: int
    count: int
    data_bytes: int
    flags: int = 0

    @property
    def end_offset(self) -> int:
        return self.offset + HEADER_BYTES + self.payload_bytes

    @property
    def end_index(self) -> int:
        return self.first_index + self.count

    @property
    def commits(self) -> bool:
        return self.kind == COMMIT or bool(self.flags & COMMITTING)


def offsets_bytes(count: int) -> int:
    """Return the size of the offsets of `count` records, padded."""
    return ((count + 1) * 4 + 7) & ~7


def frame_bytes(count: int, data_bytes: int) -> int:
    """Return the length of a frame of `count` records."""
    return HEADER_BYTES + offsets_bytes(count) + ((data_bytes + 7) & ~7)


class EncodedRecords(msgspec.Struct, frozen=True):
    """Records as the payload of a data frame, which is how Arrow has them too."""

    payload: bytes
    count: int
    data_bytes: int

    def __len__(self) -> int:
        return self.count


def encode_all(records: Sequence[bytes] | EncodedRecords) -> tuple[bytes, int]:
    """Return the payload and data size of records that may already be encoded."""
    if isinstance(records, EncodedRecords):
        return records.payload, records.data_bytes
    return encode_records(records)


def encode_offsets(
    offsets: memoryview, data: memoryview, count: int, data_bytes: int
) -> EncodedRecords:
    """Encode contiguous records, given the offsets where each begins and the last ends."""
    places = 4 * (count + 1)
    payload = b"".join((offsets, _PADDING[places & 7], data, _PADDING[data_bytes & 7]))
    return EncodedRecords(payload, count, data_bytes)


def encode_records(records: Sequence[bytes]) -> tuple[bytes, int]:
    """Return the payload of a data frame, and the size of the records in it."""
    if len(records) == 1:
        record = records[0]
        size = len(record)
        return b"".join((_ONE_OFFSETS.pack(0, size), record, _PADDING[size & 7])), size
    offsets = array("i", itertools.accumulate(map(len, records), initial=0))
    size = offsets[-1]
    if len(offsets) & 1:
        offsets.append(0)
    return b"".join((offsets.tobytes(), *records, _PADDING[size & 7])), size


class FrameCodec:
    """Encodes, decodes and checks the frames of one segment."""

    __slots__ = ("_epoch", "_seed", "mark")

    def __init__(self, log_id: bytes, epoch: int) -> None:
        self._seed = int(google_crc32c.value(log_id + epoch.to_bytes(8, "little")))
        self._epoch = epoch & 0xFFFFFFFF
        #: Bytes that every frame of the segment contains, at `MARK_OFFSET`.
        self.mark = self._epoch.to_bytes(4, "little")

    def encode(
        self,
        kind: int,
        offset: int,
        index: int,
        at: int,
        synced: int,
        payload: bytes,
        count: int = 0,
        size: int = 0,
        flags: int = 0,
    ) -> bytes:
        """Return the header of a frame, with the checksum of header and payload."""
        epoch, length = self._epoch, len(payload)
        checked = _CHECKED.pack(
            MAGIC, FORMAT, kind, flags, epoch, length, index, at, synced, count, size, 0, 0, offset
        )
        crc = _extend(_extend(self._seed, checked), payload)
        return checked[:_UNCHECKED_BYTES] + _CRC.pack(crc)

    def decode_header(self, data: Buffer, position: int, offset: int) -> FrameHeader | None:
        """Return the header at `data[position:]`, or None if no frame of this segment starts there.

        It is only plausible: `is_valid` decides.
        """
        if len(data) - position < HEADER_BYTES:
            return None
        magic, _, kind, flags, epoch, size, first, at, synced, count, data_bytes, _, _ = (
            _FIELDS.unpack_from(data, position)
        )
        if magic != MAGIC or epoch != self._epoch or kind not in _KINDS:
            return None
        # The same as frame_bytes(), inlined, because this runs for every frame read.
        if kind == DATA and not flags:
            if size != ((count * 4 + 11) & ~7) + ((data_bytes + 7) & ~7):
                return None
        elif flags and (kind != DATA or size <= frame_bytes(count, data_bytes) - HEADER_BYTES):
            return None
        return FrameHeader(kind, offset, size, first, at, synced, count, data_bytes, flags)

    def is_valid(self, header: FrameHeader, data: Buffer, position: int) -> bool:
        """Return whether the frame at `data[position:]` is complete and its checksum holds."""
        start = position + HEADER_BYTES
        end = start + header.payload_bytes
        if end > len(data):
            return False
        offset = header.offset.to_bytes(8, "little")
        checked = b"".join((data[position : position + _UNCHECKED_BYTES], offset))
        crc = _extend(_extend(self._seed, checked), data[start:end])
        return bool(crc == _CRC.unpack_from(data, position + _UNCHECKED_BYTES)[0])

    def frame_at(self, data: Buffer, position: int, offset: int) -> FrameHeader | None:
        """Return the header of the valid frame at `data[position:]`, or None."""
        header = self.decode_header(data, position, offset)
        return header if header is not None and self.is_valid(header, data, position) else None


def walk(data: bytes, index: int) -> tuple[int, int]:
    """Return the position in `data` of the frame with `index`, and the size that its header claims.

    Follows headers without checking them; the caller must check the frame that is found.
    """
    position, limit = 0, len(data) - HEADER_BYTES
    while position <= limit:
        payload_bytes, first_index, count = _WALK.unpack_from(data, position)
        if first_index + count > index:
            return position, HEADER_BYTES + payload_bytes
        position += HEADER_BYTES + payload_bytes
    return position, 0


def decode_records(data: bytes, header: FrameHeader, position: int) -> list[bytes]:
    """Return the records of a checked data frame whose payload is at `data[position:]`."""
    start = position + offsets_bytes(header.count)
    if header.count == 1:
        return [data[start : start + header.data_bytes]]
    raw = data[position : position + (header.count + 1) * 4]
    offsets = array("i", raw)
    ends = iter(offsets)
    next(ends)
    return [data[start + a : start + b] for a, b in zip(offsets, ends, strict=False)]


def decode_record(frame: bytes, header: FrameHeader, number: int) -> bytes:
    """Return one record of a checked data frame, by its position in the frame."""
    start, end = _ONE_OFFSETS.unpack_from(frame, HEADER_BYTES + number * 4)
    data = HEADER_BYTES + offsets_bytes(header.count)
    return frame[data + start : data + end]
