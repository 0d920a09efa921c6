"""Commits: metadata that is added to the log atomically with the records it belongs to.

The records are in the commit's own data frame. Version 0.1 could also adopt whole segments: files
linked under pending names that a commit frame names, and that were renamed after it was on disk.
Only the footer follows such a frame. These logs still open: recovery renames the files of a
commit and deletes pending links without one.
"""

from __future__ import annotations

import msgspec

from pillarbox.log.catalog import Segment
from pillarbox.log.disk import Disk, opened
from pillarbox.log.errors import LogCorruptError
from pillarbox.log.frame import (
    COMMIT,
    HEADER_BYTES,
    FrameHeader,
    checksum_holds,
    checksum_seed,
    decode_header,
    frame_bytes,
)


class Commit(msgspec.Struct, frozen=True):
    """A commit of the records `first_index` up to `end_index`, with its metadata."""

    first_index: int
    end_index: int
    files: list[str]
    meta: bytes
    time_ns: int
    #: The offset of the previous commit in the same segment, or 0.
    previous_offset: int = 0
    #: The epochs of the files; empty before format 2.
    epochs: list[int] = []
    #: Whether it replaces a commit that a repair could not save; only the files are known.
    lost: bool = False


def encode_commit(commit: Commit) -> bytes:
    payload = msgspec.msgpack.encode(commit)
    framed = len(payload).to_bytes(8, "little") + payload
    return framed + bytes(-len(framed) % 8)


def read_commit(disk: Disk, directory: str, segment: Segment, offset: int) -> Commit:
    """The commit frame at `offset`."""
    path = f"{directory}/{segment.name}"
    with opened(disk, path) as handle:
        head = disk.pread(handle, HEADER_BYTES, offset)
        frame = decode_header(head, 0, offset, segment.header.epoch)
        payload = disk.pread(handle, frame.payload_bytes, offset + HEADER_BYTES) if frame else b""
    seed = checksum_seed(segment.header.log_id, segment.header.epoch)
    if frame is None or not frame.commits or not checksum_holds(seed, head, payload, offset):
        raise LogCorruptError(path, "its commit frame is damaged", offset, segment.end_index)
    return decode_commit(frame, payload)


def decode_commit(frame: FrameHeader, payload: bytes) -> Commit:
    """The commit in the payload of a checked frame."""
    return _decode(payload[_commit_at(frame) :])


def relink(frame: FrameHeader, payload: bytes, previous_offset: int) -> bytes:
    """The payload of a frame that a repair moves, with the new offset of the previous commit."""
    start = _commit_at(frame)
    commit = decode_commit(frame, payload)
    commit = msgspec.structs.replace(commit, previous_offset=previous_offset)
    return payload[:start] + encode_commit(commit)


def _commit_at(frame: FrameHeader) -> int:
    """The offset of the commit in the payload of a frame: after the records, if any."""
    if frame.kind == COMMIT:
        return 0
    return frame_bytes(frame.count, frame.data_bytes) - HEADER_BYTES


def _decode(framed: bytes) -> Commit:
    size = int.from_bytes(framed[:8], "little")
    return msgspec.msgpack.decode(framed[8 : 8 + size], type=Commit)
