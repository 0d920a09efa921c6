"""R72: no flipped bit goes unseen in a closed log, and a repair says what it cost."""

from __future__ import annotations

import random

import pytest

from pillarbox.log import LogCorruptError, LogError, repair, verify
from pillarbox.log.directory import segment_name
from tests.log.support import PATH, contents, ignore_checksums, new_disk, on_disk, open_log

SEGMENT = f"{PATH}/{segment_name(0)}"
SIZE = 16384
RECORDS = [random.Random(i).randbytes(1000) for i in range(11)]


def closed_image() -> bytes:
    """A closed log of exactly 16 kB."""
    disk = new_disk()
    log = open_log(disk, segment_bytes=1 << 20)
    for record in RECORDS[:-1]:
        log.append(record)
    end = log._writer._active.segment.end_offset
    log.close()
    footer = len(disk.files()[SEGMENT]) - end
    disk = new_disk()
    log = open_log(disk, segment_bytes=1 << 20)
    for record in RECORDS[:-1]:
        log.append(record)
    filler = random.Random(99).randbytes(SIZE - end - footer - 72)
    log.append(filler)
    log.close()
    image = disk.files()[SEGMENT]
    assert len(image) == SIZE, len(image)
    return image


def expected() -> list[bytes]:
    log = open_log(on_disk({SEGMENT: closed_image()}))
    assert log.recovery.clean
    return contents(log)


def silent_flips(image: bytes, bits: range) -> list[int]:
    """The flips after which the log opens as if nothing had happened, or lost something."""
    whole = contents(open_log(on_disk({SEGMENT: image})))
    silent = []
    for bit in bits:
        flipped = bytearray(image)
        flipped[bit >> 3] ^= 1 << (bit & 7)
        try:
            log = open_log(on_disk({SEGMENT: bytes(flipped)}))
        except LogError:
            continue
        # Only the footer may be hurt without hurting a record, and that is reported.
        if log.recovery.clean or contents(log) != whole:
            silent.append(bit)
    return silent


def test_R72_every_flipped_bit_of_a_closed_log_is_detected() -> None:
    image = closed_image()
    assert silent_flips(image, range(SIZE * 8)) == []


def test_R72_control_without_checksums_flips_are_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    image = closed_image()
    ignore_checksums(monkeypatch)
    assert len(silent_flips(image, range(SIZE * 4, SIZE * 8, 997))) > 50


def test_R72_control_without_the_search_for_evidence_damage_is_cut_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    image = closed_image()
    monkeypatch.setattr("pillarbox.log.recovery.evidence_of_damage", lambda *_: None)
    assert len(silent_flips(image, range(SIZE * 4, SIZE * 8, 997))) > 50


def test_R72_repair_lists_what_a_flip_cost_and_keeps_the_rest() -> None:
    image = closed_image()
    whole = contents(open_log(on_disk({SEGMENT: image})))
    for bit in range(0, SIZE * 8, 331):
        flipped = bytearray(image)
        flipped[bit >> 3] ^= 1 << (bit & 7)
        disk = on_disk({SEGMENT: bytes(flipped)})
        report = repair(PATH, disk=disk)
        lost = [i for d in report.damage for i in range(d.first_index, d.end_index)]
        hurt = [d for d in report.damage if d.first_byte <= bit >> 3 < d.end_byte]
        assert hurt or report.torn_tail is not None, bit
        log = open_log(disk)
        assert contents(log) == [r for i, r in enumerate(whole) if i not in lost], bit
        assert len(lost) <= 1, bit
        assert verify(PATH, disk=disk).healthy, bit


def test_R72_repair_keeps_the_damaged_segment_and_the_indices_of_the_rest() -> None:
    image = closed_image()
    flipped = bytearray(image)
    flipped[flipped.find(RECORDS[4]) + 5] ^= 64
    disk = on_disk({SEGMENT: bytes(flipped)})
    with pytest.raises(LogCorruptError):
        open_log(disk)
    steps: list[tuple[int, int]] = []
    report = repair(PATH, disk=disk, progress=lambda done, total: steps.append((done, total)))
    assert steps == [(1, 1)]
    assert [(d.first_index, d.end_index) for d in report.damage] == [(4, 5)]
    assert disk.files()[f"{PATH}/{report.kept_aside[0]}"] == bytes(flipped)
    log = open_log(disk)
    assert log.get(3) == RECORDS[3]
    assert log.get(5) == RECORDS[5]
    with pytest.raises(LogCorruptError, match="lost"):
        log.get(4)
    assert [r.index for r in log.tailer().read(6)] == [0, 1, 2, 3, 5, 6]
    assert log.append(b"next") == len(expected())
