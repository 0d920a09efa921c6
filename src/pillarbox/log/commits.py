"""Commit frames: the one frame that makes staged segments part of the log, all or none.

Adoption links the staged files into the log's directory under pending names, syncs, writes
the commit frame, syncs, and only then gives them their real names. Recovery finishes what a
commit frame promises and drops pending links that none does. A commit frame takes no index,
nothing but the footer follows one that names files, and its metadata is opaque to the log.
"""

from __future__ import annotations

import msgspec

from pillarbox.log.catalog import Segment
from pillarbox.log.disk import Disk
from pillarbox.log.errors import LogCorruptError
from pillarbox.log.frame import COMMIT, HEADER_BYTES, checksum_holds, checksum_seed, decode_header


class Commit(msgspec.Struct, frozen=True):
    """What one adoption added: records `first_index` up to `end_index`, and its metadata."""

    first_index: int
    end_index: int
    files: list[str]
    meta: bytes
    time_ns: int
    #: Where the commit frame before this one lies in the same segment, or 0.
    previous_offset: int = 0


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
    if frame is None or frame.kind != COMMIT or not checksum_holds(seed, head, payload, offset):
        raise LogCorruptError(path, "its commit frame is damaged", offset, segment.end_index)
    size = int.from_bytes(payload[:8], "little")
    return msgspec.msgpack.decode(payload[8 : 8 + size], type=Commit)
