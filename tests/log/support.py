"""What the tests of the log share: a simulated disk with a log on it, and a way to read it."""

from __future__ import annotations

from typing import Any

import pytest

from pillarbox.log import Log
from pillarbox.log.frame import DATA, FrameCodec, FrameHeader
from pillarbox.log.readable_log import ReadableLog
from pillarbox.testing.disk import SimDisk

PATH = "data/log"


def new_disk(**options: Any) -> SimDisk:
    disk = SimDisk(**options)
    disk.make_directory("data")
    disk.sync_directory("")
    return disk


def open_log(disk: SimDisk, **options: Any) -> Log:
    """A log with small segments and nothing in the background: every run is the same."""
    options.setdefault("segment_bytes", 16384)
    return Log.open(PATH, disk=disk, prepare_ahead=False, **options)


def contents(log: ReadableLog) -> list[bytes]:
    return [record for frame in log.frames() for record in frame.records]


def on_disk(files: dict[str, bytes]) -> SimDisk:
    disk = SimDisk.of_files(files)
    if PATH not in disk._directories:
        disk.make_directory("data")
        disk.make_directory(PATH)
    return disk


def ignore_checksums(monkeypatch: pytest.MonkeyPatch) -> None:
    """Accept every complete frame with records, whatever its checksum."""
    checked = FrameCodec.is_valid

    def is_complete(self: FrameCodec, header: FrameHeader, data: bytes, position: int) -> bool:
        if header.kind != DATA:
            return checked(self, header, data, position)
        return position + header.end_offset - header.offset <= len(data)

    monkeypatch.setattr(FrameCodec, "is_valid", is_complete)
