"""Commits: metadata that is added to the log atomically with the records it belongs to.

The records are in the commit's own data frame; a commit without records has a frame of its own.
"""

from __future__ import annotations

import msgspec

from pillarbox.log.directory import LogDirectory
from pillarbox.log.errors import LogCorruptError
from pillarbox.log.frame import COMMIT, HEADER_BYTES, FrameHeader, frame_bytes
from pillarbox.log.segments import Segment, read_frame

#: More than a commit takes beyond its metadata (about 130 bytes).
COMMIT_BYTES_MAX = 256


class Commit(msgspec.Struct, frozen=True):
    """A commit of the records `first_index` up to `end_index`, with its metadata."""

    first_index: int
    end_index: int
    meta: bytes
    time_ns: int
    #: The offset of the previous commit in the same segment, or 0.
    previous_offset: int = 0


def encode_commit(commit: Commit) -> bytes:
    payload = msgspec.msgpack.encode(commit)
    framed = len(payload).to_bytes(8, "little") + payload
    return framed + bytes(-len(framed) % 8)


def read_commit(directory: LogDirectory, segment: Segment, offset: int) -> Commit:
    """Return the commit in the frame at `offset`."""
    with directory.opened(segment.name) as handle:
        found = read_frame(directory.disk, handle, segment.header.codec, offset)
    if found is None or not found[0].commits:
        path = directory.path_of(segment.name)
        raise LogCorruptError(path, "its commit frame is damaged", offset, segment.end_index)
    return decode_commit(*found)


def decode_commit(frame: FrameHeader, payload: bytes) -> Commit:
    """Return the commit in the payload of a checked frame."""
    framed = payload[_commit_at(frame) :]
    size = int.from_bytes(framed[:8], "little")
    return msgspec.msgpack.decode(framed[8 : 8 + size], type=Commit)


def relink(frame: FrameHeader, payload: bytes, previous_offset: int) -> bytes:
    """Return the payload of a moved frame, with the new offset of the previous commit."""
    commit = decode_commit(frame, payload)
    commit = msgspec.structs.replace(commit, previous_offset=previous_offset)
    return payload[: _commit_at(frame)] + encode_commit(commit)


def _commit_at(frame: FrameHeader) -> int:
    """Return the offset of the commit in the payload of a frame: after the records, if any."""
    if frame.kind == COMMIT:
        return 0
    return frame_bytes(frame.count, frame.data_bytes) - HEADER_BYTES
