"""R70: every released format still opens. The fixture is never rewritten, only added to."""

from __future__ import annotations

import itertools
import shutil
import struct
from pathlib import Path

import google_crc32c
import pytest

from pillarbox.log import Log, LogCorruptError, LogFormatError, repair, verify
from pillarbox.log.layout import FORMAT
from tests.log.support import contents

FIXTURES = Path(__file__).parent / "fixtures"
RECORDS = [b"first", b"", b"three" * 100, *[b"%d" % i * 80 for i in range(50)], b"last"]


@pytest.mark.parametrize("state", ["closed", "killed"])
@pytest.mark.parametrize("version", range(1, FORMAT + 1))
def test_R70_every_format_still_opens(tmp_path: Path, version: int, state: str) -> None:
    shutil.copytree(FIXTURES / f"v{version}-{state}", tmp_path / "log")
    report = verify(tmp_path / "log")
    assert report.healthy
    assert report.records == len(RECORDS)
    with Log.open(tmp_path / "log") as log:
        assert log.recovery.clean == (state == "closed")
        assert contents(log) == RECORDS
        assert [commit.meta for commit in log.commits()] == ([b"meta"] if version > 1 else [])
        assert log.append(b"new") == len(RECORDS)
    assert verify(tmp_path / "log").healthy


@pytest.mark.parametrize("version", range(1, FORMAT + 1))
def test_R112_exchanged_segments_of_every_format_are_recognised_and_put_back(
    tmp_path: Path, version: int
) -> None:
    for at, (a, b) in enumerate(itertools.combinations(range(5), 2)):
        log_path = tmp_path / str(at)
        shutil.copytree(FIXTURES / f"v{version}-closed", log_path)
        files = sorted(log_path.glob("*.seg"))
        files[a].rename(log_path / "kept")
        files[b].rename(files[a])
        (log_path / "kept").rename(files[b])
        with pytest.raises(LogCorruptError):
            Log.open(log_path)
        assert not verify(log_path).healthy
        repair(log_path)
        with Log.open(log_path, check="all") as log:
            assert contents(log) == RECORDS


@pytest.mark.parametrize("pending", [False, True])
def test_R70_a_segment_of_a_spark_task_of_version_0_1_is_refused_with_advice(
    tmp_path: Path, *, pending: bool
) -> None:
    """Version 0.1 linked it under a pending name, wrote its commit, and then renamed it."""
    path = tmp_path / "log"
    shutil.copytree(FIXTURES / "v1-adopted", path)
    if pending:
        (adopted,) = path.glob("*a.seg")
        adopted.rename(f"{adopted}.pending")
    before = {file: file.read_bytes() for file in path.glob("*seg*")}
    for use in (Log.open, lambda path: Log.open(path, readonly=True), verify, repair):
        with pytest.raises(LogFormatError, match=r"pip install pillarbox==0\.1"):
            use(path)
    assert {file: file.read_bytes() for file in path.glob("*seg*")} == before


def test_R70_a_newer_format_is_refused_with_advice(tmp_path: Path) -> None:
    shutil.copytree(FIXTURES / "v1-closed", tmp_path / "log")
    segment = sorted((tmp_path / "log").glob("*.seg"))[-1]
    data = bytearray(segment.read_bytes())
    struct.pack_into("<H", data, 8, FORMAT + 1)
    struct.pack_into("<I", data, 4092, google_crc32c.value(bytes(data[:4092])))
    segment.write_bytes(data)
    with pytest.raises(LogFormatError, match="upgrade"):
        Log.open(tmp_path / "log")
