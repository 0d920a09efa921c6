"""R72: a torn tail is cut and exactly the confirmed prefix comes back, wherever the tear is."""

from __future__ import annotations

import contextlib
import random

import pytest

from pillarbox.log import LogCorruptError, LogError
from pillarbox.log.directory import ASIDE, LogDirectory, segment_name
from pillarbox.log.disk import make_directory
from pillarbox.log.layout import BLOCK_BYTES
from pillarbox.log.spare_files import SpareFiles
from tests.log.support import PATH, contents, ignore_checksums, new_disk, on_disk, open_log

SEGMENT = f"{PATH}/{segment_name(0)}"
SIZE = 65536
RECORDS = [random.Random(i).randbytes(3000 + 83 * i) for i in range(17)]


def unclosed_image() -> tuple[bytes, list[int]]:
    """The first 64 kB of a log that was never closed, and where each record's frame ends."""
    disk = new_disk()
    log = open_log(disk, segment_bytes=1 << 20)
    ends = []
    for record in RECORDS:
        log.append(record)
        ends.append(log._writer._active.segment.end_offset)
    return disk.kill().files()[SEGMENT][:SIZE], ends


def whole_records(image: bytes, cut: int, written: bytes, ends: list[int]) -> int:
    """How many records are whole: those before the cut, and one of which only padding is cut."""
    count = sum(end <= cut for end in ends)
    if count < len(ends) and image[cut : ends[count]] == written[cut : ends[count]]:
        count += len(image) >= ends[count]
    return count


def prefixes_that_differ(images: dict[int, bytes], written: bytes, ends: list[int]) -> list[int]:
    """The cuts after which anything but the whole records before the cut came back."""
    wrong = []
    for cut, image in images.items():
        try:
            log = open_log(on_disk({SEGMENT: image}), segment_bytes=1 << 20)
        except LogError:
            wrong.append(cut)
            continue
        if contents(log) != RECORDS[: whole_records(image, cut, written, ends)]:
            wrong.append(cut)
    return wrong


def test_R72_log_cut_at_every_byte_gives_back_exactly_the_whole_records() -> None:
    image, ends = unclosed_image()
    assert len(image) == SIZE
    assert ends[-2] < SIZE < ends[-1] + 4096
    assert prefixes_that_differ({cut: image[:cut] for cut in range(SIZE)}, image, ends) == []


def test_R72_log_zeroed_from_any_byte_gives_back_exactly_the_whole_records() -> None:
    image, ends = unclosed_image()
    cuts = range(4096, SIZE, 5)
    images = {cut: image[:cut].ljust(SIZE, b"\0") for cut in cuts}
    assert prefixes_that_differ(images, image, ends) == []


def test_R72_recycled_file_torn_at_any_byte_shows_no_stale_frame() -> None:
    image, ends = unclosed_image()
    earlier_life, _ = unclosed_image()
    cuts = range(4096, SIZE, 7)
    images = {cut: image[:cut] + earlier_life[cut:] for cut in cuts}
    assert prefixes_that_differ(images, image, ends) == []


def test_R72_control_without_checksums_a_torn_record_comes_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    image, ends = unclosed_image()
    ignore_checksums(monkeypatch)
    cuts = range(4200, SIZE, 301)
    images = {cut: image[:cut].ljust(SIZE, b"\0") for cut in cuts}
    assert len(prefixes_that_differ(images, image, ends)) > len(cuts) // 2


def test_R72_log_goes_on_after_a_cut_and_the_cut_is_reported() -> None:
    image, ends = unclosed_image()
    disk = on_disk({SEGMENT: image[: ends[9] + 100]})
    log = open_log(disk, segment_bytes=1 << 20)
    assert log.recovery.cut == [(SEGMENT, ends[9], 100)]
    assert log.append(b"next") == 10
    log.close()
    again = open_log(disk, segment_bytes=1 << 20)
    assert again.recovery.clean
    assert contents(again) == [*RECORDS[:10], b"next"]


def test_R72_damage_before_whole_frames_refuses_to_open() -> None:
    image, ends = unclosed_image()
    damaged = bytearray(image)
    damaged[ends[3] + 70] ^= 1
    with pytest.raises(LogCorruptError, match="repair") as caught:
        open_log(on_disk({SEGMENT: bytes(damaged)}))
    assert caught.value.index == 4
    assert caught.value.offset == ends[3]


def test_R72_level_os_after_power_loss_is_cut_at_the_first_hole() -> None:
    """Frames after the hole were never on disk for sure: a hole is a tear, not damage."""
    disk = new_disk()
    log = open_log(disk, durability="os", segment_bytes=1 << 20)
    for record in RECORDS[:10]:
        log.append(record)
    image = bytearray(disk.kill().files()[SEGMENT])
    hole = image.find(RECORDS[5])
    image[hole : hole + 100] = bytes(100)
    after = open_log(on_disk({SEGMENT: bytes(image)}))
    assert contents(after) == RECORDS[:5]


def torn_twice(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """What `aside/` has after two crashes at level os that tear the same segment."""
    monkeypatch.setattr(SpareFiles, "sync_later", lambda *_: None)
    disk = new_disk()
    for turn in (b"one", b"two"):
        log = open_log(disk, durability="os", segment_bytes=8192)
        while len(log._catalog.segments) < 2:
            log.append(turn * 100)
        files = disk.kill().files()
        torn = f"{PATH}/{segment_name(0)}"
        files[torn] = files[torn][:BLOCK_BYTES]
        disk = on_disk(files)
    log = open_log(disk, durability="os", segment_bytes=8192)
    assert contents(log) == []
    assert len(log.recovery.aside) == 1
    return [content for path, content in disk.files().items() if f"{PATH}/aside/" in path]


def test_R72_segments_after_a_torn_one_are_all_kept_aside(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kept = torn_twice(monkeypatch)
    assert sum(b"oneone" in content for content in kept) == 1
    assert sum(b"twotwo" in content for content in kept) == 1


def test_R72_control_a_rename_replaces_what_was_kept_aside_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def rename(self: LogDirectory, source: str, name: str) -> str:
        make_directory(self.disk, self.path_of(ASIDE))
        with contextlib.suppress(FileNotFoundError):
            self.unlink(f"{ASIDE}/{name}")
        self.disk.link(source, self.path_of(f"{ASIDE}/{name}"))
        return f"{ASIDE}/{name}"

    monkeypatch.setattr(LogDirectory, "set_aside", rename)
    assert not any(b"oneone" in content for content in torn_twice(monkeypatch))
