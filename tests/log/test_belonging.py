"""R112: a segment that belongs elsewhere is recognised; a repaired log gives what was written."""

from __future__ import annotations

import itertools
import random

import pytest

from pillarbox.log import LogCorruptError, LogError, RecordLostError, repair, verify
from pillarbox.log.directory import base_of_name, is_segment_name, segment_name
from pillarbox.log.log import Log
from pillarbox.testing.disk import SimDisk
from tests.log.support import PATH, new_disk, on_disk, open_log

Files = dict[str, bytes]


class Sample:
    """A log with commits, and with many segments of equally many records."""

    def __init__(self, seed: int, disk: SimDisk | None = None) -> None:
        self._chance = random.Random(seed)
        self.records: list[bytes] = []
        self.disk = disk or new_disk()

    def write(self, count: int) -> None:
        with open_log(self.disk, segment_bytes=8192) as log:
            for _ in range(count):
                self.records.append(self._chance.randbytes(600))
                log.append(self.records[-1])

    def commit(self, count: int) -> None:
        records = [self._chance.randbytes(600) for _ in range(count)]
        self.records += records
        with open_log(self.disk, segment_bytes=8192) as log:
            log.append_committed(records, b"batch")

    def files(self) -> Files:
        files = self.disk.files()
        names = sorted(path for path in files if is_segment_name(path.removeprefix(f"{PATH}/")))
        return {path: files[path] for path in names}


def names_of(files: Files) -> list[str]:
    return [path.rpartition("/")[2] for path in files]


def sample(seed: int) -> Sample:
    made = Sample(seed)
    made.write(14)
    made.commit(13)
    made.write(4)
    made.commit(5)
    made.commit(7)
    made.write(9)
    return made


@pytest.fixture(scope="module")
def ours() -> Sample:
    return sample(1)


@pytest.fixture(scope="module")
def theirs() -> Sample:
    return sample(2)


def swapped(files: Files, a: str, b: str) -> Files:
    return files | {a: files[b], b: files[a]}


def wrong(log: Log, records: list[bytes]) -> list[int]:
    """Indices under which a log has something else than what was written there."""
    found = []
    for index in range(log.first_index, log.end_index):
        try:
            if log.get(index) != records[index]:
                found.append(index)
        except RecordLostError:
            pass
    return found


def check_open(files: Files, records: list[bytes]) -> None:
    """Opening refuses, or what it gives is right."""
    try:
        log = open_log(on_disk(files))
    except LogError:
        return
    assert not wrong(log, records)
    assert log.end_index == len(records)


def check_repair(files: Files, records: list[bytes]) -> list[int]:
    """Verify finds it, repair mends it, the log opens; the indices that are lost."""
    found = verify(PATH, disk=on_disk(files))
    assert not found.healthy
    assert all(each.first_index <= each.end_index for each in found.damage)
    disk = on_disk(files)
    report = repair(PATH, disk=disk)
    assert report.damage == found.damage
    assert verify(PATH, disk=disk).healthy
    log = open_log(disk, check="all")
    assert not wrong(log, records)
    assert log.append(b"next") == log.end_index - 1
    log.close()
    open_log(disk, check="all").close()
    kept = {disk.files()[f"{PATH}/{each}"] for each in report.kept_aside}
    assert kept <= set(files.values())
    lost = [index for each in report.damage for index in range(each.first_index, each.end_index)]
    assert len(set(lost)) == len(lost), "each loss is told once"
    return sorted(lost)


def span_of(files: Files, path: str, records: list[bytes]) -> list[int]:
    bases = [*map(base_of_name, names_of(files)), len(records)]
    at = list(files).index(path)
    return list(range(bases[at], bases[at + 1]))


def test_R112_any_two_segments_that_were_exchanged_are_put_back(ours: Sample) -> None:
    files = ours.files()
    assert len(files) > 8
    for a, b in itertools.combinations(files, 2):
        hurt = swapped(files, a, b)
        check_open(hurt, ours.records)
        assert check_repair(hurt, ours.records) == []


def test_R112_an_exchange_in_a_log_that_was_killed_is_put_back(ours: Sample) -> None:
    """The last segment is open: it has no footer, and room that is reserved."""
    made = sample(3)
    log = open_log(made.disk, segment_bytes=8192)
    made.records.append(b"not closed")
    log.append(b"not closed")
    made.disk = made.disk.kill()
    files = made.files()
    for a in list(files)[:-1]:
        hurt = swapped(files, a, list(files)[-1])
        check_open(hurt, made.records)
        assert check_repair(hurt, made.records) == []


def test_R112_all_segments_in_another_order_are_put_back(ours: Sample) -> None:
    files = ours.files()
    for seed in range(8):
        contents = list(files.values())
        random.Random(seed).shuffle(contents)
        hurt = dict(zip(files, contents, strict=True))
        check_open(hurt, ours.records)
        assert check_repair(hurt, ours.records) == []


def test_R112_a_renamed_segment_gets_its_name_back(ours: Sample) -> None:
    files = ours.files()
    for path, base in itertools.product(files, (7, 999)):
        renamed = f"{PATH}/{segment_name(base)}"
        hurt = {other: data for other, data in files.items() if other != path}
        hurt[renamed] = files[path]
        check_open(hurt, ours.records)
        assert check_repair(hurt, ours.records) == []


def test_R112_a_segment_that_was_copied_over_another_costs_what_it_replaced(ours: Sample) -> None:
    files = ours.files()
    paths = list(files)
    for a, b in itertools.permutations(paths, 2):
        if (paths.index(a) + paths.index(b)) % 3 == 0:  # a third of them will do
            costs_what_it_replaced(ours, files, a, files[b])


def test_R112_a_segment_of_another_log_costs_what_it_replaced(ours: Sample, theirs: Sample) -> None:
    files, foreign = ours.files(), theirs.files()
    assert list(files) == list(foreign)
    for a in files:
        for b in {a, *random.Random(a).sample(list(foreign), 2)}:
            costs_what_it_replaced(ours, files, a, foreign[b])


def costs_what_it_replaced(ours: Sample, files: Files, path: str, content: bytes) -> None:
    hurt = files | {path: content}
    check_open(hurt, ours.records)
    lost = check_repair(hurt, ours.records)
    if path not in (next(iter(files)), list(files)[-1]):  # where a log begins and ends, who knows
        assert lost == span_of(files, path, ours.records)


def test_R112_a_missing_segment_is_told_and_stood_in_for(ours: Sample) -> None:
    files = ours.files()
    for path in list(files)[1:-1]:
        hurt = {other: data for other, data in files.items() if other != path}
        check_open(hurt, ours.records)
        assert check_repair(hurt, ours.records) == span_of(files, path, ours.records)
    for a, b in itertools.combinations(list(files)[1:-1], 2):
        hurt = {other: data for other, data in files.items() if other not in (a, b)}
        check_open(hurt, ours.records)
        both = span_of(files, a, ours.records) + span_of(files, b, ours.records)
        assert check_repair(hurt, ours.records) == sorted(both)


def test_R112_an_older_copy_of_a_segment_costs_what_it_does_not_hold() -> None:
    made = Sample(4)
    made.write(2)
    older = made.files()
    (path,) = older
    held = len(made.records)
    made.write(20)
    files = made.files()
    assert files[path] != older[path]
    hurt = files | {path: older[path]}
    check_open(hurt, made.records)
    span = span_of(files, path, made.records)
    assert check_repair(hurt, made.records) == span[held:] != []


def test_R112_a_segment_of_a_copy_that_went_its_own_way_is_recognised() -> None:
    """The same log id, the same index, the same number of records: only the epochs differ."""
    made = Sample(5)
    made.write(10)
    fork = Sample(6, made.disk.kill())
    fork.records = list(made.records)
    made.write(20)
    fork.write(20)
    files, foreign = made.files(), fork.files()
    paths = list(files)
    assert paths == list(foreign)
    for path in paths[3:-2]:
        hurt = files | {path: foreign[path]}
        check_open(hurt, made.records)
        assert check_repair(hurt, made.records) == span_of(files, path, made.records)


def test_R112_control_without_the_check_another_segments_records_are_given(
    ours: Sample, theirs: Sample, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pillarbox.log.recovery.check_link", lambda *_: None)
    files, foreign = ours.files(), theirs.files()
    given = 0
    for path in files:
        try:
            log = open_log(on_disk(files | {path: foreign[path]}))
            given += bool(wrong(log, ours.records))
        except (LogError, AssertionError):
            pass
    assert given > 3


def test_R112_a_reader_in_another_process_refuses_too(ours: Sample) -> None:
    files = ours.files()
    paths = list(files)
    for a, b in itertools.combinations(paths[:-1], 2):
        with pytest.raises(LogCorruptError):
            Log.open(PATH, disk=on_disk(swapped(files, a, b)), readonly=True)


def test_R112_a_repair_that_is_killed_at_any_step_can_be_repeated(ours: Sample) -> None:
    files = ours.files()
    paths = list(files)
    hurt = swapped(files, paths[1], paths[4])
    hurt = swapped(hurt, paths[2], paths[-1])
    for step in range(1, 60):
        calls = 0

        def kill(operation: str, path: str, *, limit: int = step) -> None:
            nonlocal calls
            calls += operation in ("rename", "link", "unlink")
            if calls == limit:
                raise KeyboardInterrupt

        disk = on_disk(hurt)
        disk.before = kill
        try:
            repair(PATH, disk=disk)
        except KeyboardInterrupt:
            pass
        else:
            break
        again = disk.kill()
        assert {*files.values()} <= {*again.files().values()}
        repair(PATH, disk=again)
        log = open_log(again, check="all")
        assert not wrong(log, ours.records)
        assert [log.get(i) for i in range(log.end_index)] == ours.records
    assert step > 5


def test_R112_as_much_of_one_log_as_of_another_is_left_to_the_user() -> None:
    one, other = Sample(7), Sample(8)
    one.write(12)
    other.write(12)
    files, foreign = one.files(), other.files()
    paths = list(files)
    hurt = {paths[0]: files[paths[0]], paths[1]: foreign[paths[1]]}
    check_open(hurt, one.records)
    with pytest.raises(LogError, match="remove those that do not belong"):
        repair(PATH, disk=on_disk(hurt))
    with open_log(on_disk({paths[0]: files[paths[0]]})) as log:
        known = log.log_id.hex()
    disk = on_disk(hurt)
    repair(PATH, disk=disk, log_id=known)
    assert not wrong(open_log(disk), one.records)


def test_R112_any_flipped_bit_in_a_log_with_commits_can_be_repaired(
    ours: Sample,
) -> None:
    files = ours.files()
    chance = random.Random(1)
    for path, data in files.items():
        for _ in range(12):
            hurt = bytearray(data)
            at = chance.choice((chance.randrange(80), chance.randrange(len(data))))
            hurt[at] ^= 1 << chance.randrange(8)
            changed = files | {path: bytes(hurt)}
            try:
                assert not wrong(open_log(on_disk(changed), check="all"), ours.records)
            except LogError:
                disk = on_disk(changed)
                repair(PATH, disk=disk)
                assert verify(PATH, disk=disk).healthy
                assert not wrong(open_log(disk, check="all"), ours.records)


def hurt_at_random(files: Files, foreign: Files, chance: random.Random) -> Files:
    """Some of the things that can happen to files."""
    hurt = dict(files)
    for _ in range(chance.randint(1, 4)):
        a, b = chance.sample(list(hurt), 2)
        data = bytearray(hurt[a])
        place = chance.randrange(len(data) or 1)
        change = chance.randrange(7)
        if change == 0:
            hurt = swapped(hurt, a, b)
        elif change == 1:
            hurt[a] = hurt[b]
        elif change == 2:
            del hurt[a]
        elif change == 3:
            hurt[a] = foreign.get(a, hurt[a])
        elif change == 4:
            hurt[a] = hurt[a][:place]
        else:
            size = 1 if change == 5 else chance.choice((10, 500, 4096))
            data[place : place + size] = bytes(byte ^ 255 for byte in data[place : place + size])
            hurt[a] = bytes(data)
    return hurt


def test_R112_damage_and_disorder_together_are_repaired(ours: Sample) -> None:
    """Whatever happens to the files, a repaired log opens, and gives nothing else."""
    files, foreign = ours.files(), sample(9).files()
    for seed in range(120):
        disk = on_disk(hurt_at_random(files, foreign, random.Random(seed)))
        repair(PATH, disk=disk)
        assert verify(PATH, disk=disk).healthy, seed
        log = open_log(disk, check="all")
        assert not wrong(log, ours.records), seed
