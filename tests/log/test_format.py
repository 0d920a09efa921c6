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
V1_RECORDS = [b"first", b"", b"three" * 100, *[b"%d" % i for i in range(50)], b"last"]


@pytest.mark.parametrize("state", ["closed", "killed"])
@pytest.mark.parametrize("version", range(1, FORMAT + 1))
def test_R70_every_format_still_opens(tmp_path: Path, version: int, state: str) -> None:
    shutil.copytree(FIXTURES / f"v{version}-{state}", tmp_path / "log")
    report = verify(tmp_path / "log")
    assert report.healthy
    assert report.records == len(V1_RECORDS)
    with Log.open(tmp_path / "log") as log:
        assert log.recovery.clean == (state == "closed")
        assert contents(log) == V1_RECORDS
        assert [commit.meta for commit in log.commits()] == [b"v1"]
        assert log.append(b"new") == len(V1_RECORDS)
    assert verify(tmp_path / "log").healthy


@pytest.mark.parametrize("version", range(1, FORMAT + 1))
def test_R112_exchanged_segments_of_every_format_are_recognised_and_put_back(
    tmp_path: Path, version: int
) -> None:
    for at, (a, b) in enumerate(itertools.combinations(range(3), 2)):
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
            if version > 1 or 1 not in (a, b):  # format 1 did not note what was adopted
                assert contents(log) == V1_RECORDS


def test_R70_a_newer_format_is_refused_with_advice(tmp_path: Path) -> None:
    shutil.copytree(FIXTURES / "v1-closed", tmp_path / "log")
    segment = sorted((tmp_path / "log").glob("*.seg"))[-1]
    data = bytearray(segment.read_bytes())
    struct.pack_into("<H", data, 8, FORMAT + 1)
    struct.pack_into("<I", data, 4092, google_crc32c.value(bytes(data[:4092])))
    segment.write_bytes(data)
    with pytest.raises(LogFormatError, match="upgrade"):
        Log.open(tmp_path / "log")
