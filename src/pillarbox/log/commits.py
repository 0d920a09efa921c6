"""Commits: metadata that becomes part of the log in one frame with what it completes.

Few records travel in the frame itself: a data frame with the commit behind them. Many are
adopted: the staged files are linked into the log's directory under pending names, synced, and
get their real names only after the commit frame is on disk. Recovery finishes what a commit
promises and drops pending links that none does. A commit frame takes no index, nothing but the
footer follows one that names files, and the metadata is opaque to the log.
"""

from __future__ import annotations

import msgspec

from pillarbox.log.catalog import Segment
from pillarbox.log.disk import Disk
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
    """What one commit added: records `first_index` up to `end_index`, and its metadata."""

    first_index: int
    end_index: int
    files: list[str]
    meta: bytes
    time_ns: int
    #: Where the commit before this one lies in the same segment, or 0.
    previous_offset: int = 0
    #: By which each of the files is known; none were noted before format 2.
    epochs: list[int] = []
    #: Whether it stands for one that a repair could not save: only its files are known.
    lost: bool = False


def encode_commit(commit: Commit) -> bytes:
    payload = msgspec.msgpack.encode(commit)
    framed = len(payload).to_bytes(8, "little") + payload
    return framed + bytes(-len(framed) % 8)


def read_commit(disk: Disk, directory: str, segment: Segment, offset: int) -> Commit:
    """The commit frame at `offset`."""
    path = f"{directory}/{segment.name}"
    handle = disk.open(path)
    try:
        head = disk.pread(handle, HEADER_BYTES, offset)
        frame = decode_header(head, 0, offset, segment.header.epoch)
        payload = disk.pread(handle, frame.payload_bytes, offset + HEADER_BYTES) if frame else b""
    finally:
        disk.close(handle)
    seed = checksum_seed(segment.header.log_id, segment.header.epoch)
    if frame is None or not frame.commits or not checksum_holds(seed, head, payload, offset):
        raise LogCorruptError(path, "its commit frame is damaged", offset, segment.end_index)
    return decode_commit(frame, payload)


def decode_commit(frame: FrameHeader, payload: bytes) -> Commit:
    """The commit in the payload of a checked frame that commits."""
    return _decode(payload[_commit_at(frame) :])


def relink(frame: FrameHeader, payload: bytes, previous_offset: int) -> bytes:
    """The payload of a committing frame that a repair moves: the commit before it moved too."""
    start = _commit_at(frame)
    commit = decode_commit(frame, payload)
    commit = msgspec.structs.replace(commit, previous_offset=previous_offset)
    return payload[:start] + encode_commit(commit)


def _commit_at(frame: FrameHeader) -> int:
    """Where in a frame's payload its commit begins: behind the records, if it has any."""
    if frame.kind == COMMIT:
        return 0
    return frame_bytes(frame.count, frame.data_bytes) - HEADER_BYTES


def _decode(framed: bytes) -> Commit:
    size = int.from_bytes(framed[:8], "little")
    return msgspec.msgpack.decode(framed[8 : 8 + size], type=Commit)
