"""R70: every released format still opens. The fixture is never rewritten, only added to."""

from __future__ import annotations

import shutil
import struct
from pathlib import Path

import google_crc32c
import pytest

from pillarbox.log import Log, LogFormatError, verify
from pillarbox.log.layout import FORMAT
from tests.log.support import contents

FIXTURES = Path(__file__).parent / "fixtures"
V1_RECORDS = [b"first", b"", b"three" * 100, *[b"%d" % i for i in range(50)], b"last"]


@pytest.mark.parametrize("state", ["closed", "killed"])
def test_R70_format_1_still_opens(tmp_path: Path, state: str) -> None:
    shutil.copytree(FIXTURES / f"v1-{state}", tmp_path / "log")
    report = verify(tmp_path / "log")
    assert report.healthy
    assert report.records == len(V1_RECORDS)
    with Log.open(tmp_path / "log") as log:
        assert log.recovery.clean == (state == "closed")
        assert contents(log) == V1_RECORDS
        assert [commit.meta for commit in log.commits()] == [b"v1"]
        assert log.append(b"new") == len(V1_RECORDS)


def test_R70_a_newer_format_is_refused_with_advice(tmp_path: Path) -> None:
    shutil.copytree(FIXTURES / "v1-closed", tmp_path / "log")
    segment = sorted((tmp_path / "log").glob("*.seg"))[-1]
    data = bytearray(segment.read_bytes())
    struct.pack_into("<H", data, 8, FORMAT + 1)
    struct.pack_into("<I", data, 4092, google_crc32c.value(bytes(data[:4092])))
    segment.write_bytes(data)
    with pytest.raises(LogFormatError, match="upgrade"):
        Log.open(tmp_path / "log")
