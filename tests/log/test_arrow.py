"""R86: a log is read as Arrow record batches straight from its mapped segments."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from pillarbox.log import Log, LogCorruptError, LogIndexError

pa = pytest.importorskip("pyarrow")


def test_R86_batches_hold_index_time_and_record(tmp_path: Path) -> None:
    records = [b"%d" % i * (i % 30) for i in range(3000)]
    with Log.open(tmp_path / "log", segment_bytes=16384) as log:
        for start in range(0, 3000, 100):
            log.append_many(records[start : start + 100])
        table = pa.Table.from_batches(log.read_arrow())
        assert table.column("record").to_pylist() == records
        assert table.column("index").to_pylist() == list(range(3000))
        assert table.column("time").cast("int64")[-1].as_py() == log.last_time_ns
        part = pa.Table.from_batches(log.read_arrow(150, 2750))
        assert part.column("record").to_pylist() == records[150:2750]
        assert list(log.read_arrow(10, 10)) == []
        with Log.open(tmp_path / "log", readonly=True) as reader:
            assert pa.Table.from_batches(reader.read_arrow()).equals(table)


def test_R86_batches_outlive_the_log_and_its_files(tmp_path: Path) -> None:
    with Log.open(tmp_path / "log", segment_bytes=8192, prepare_ahead=False) as log:
        for number in range(40):
            log.append_many([b"%d" % number * 100] * 2)
        batches = list(log.read_arrow())
        before = pa.Table.from_batches(batches).column("record").to_pylist()
        log.truncate_before(80)
        for _ in range(40):
            log.append(b"other" * 100)
        assert pa.Table.from_batches(batches).column("record").to_pylist() == before


def test_R86_damage_is_an_error(tmp_path: Path) -> None:
    with Log.open(tmp_path / "log") as log:
        log.append_many([b"x" * 100] * 10)
        with (tmp_path / "log" / log._catalog.segments[0].name).open("r+b") as file:
            file.seek(4500)
            file.write(b"!")
        with pytest.raises(LogCorruptError):
            list(log.read_arrow())


def test_R86_batches_go_on_after_segments_that_are_dropped_meanwhile(tmp_path: Path) -> None:
    with Log.open(tmp_path / "log", segment_bytes=8192, prepare_ahead=False) as log:
        for number in range(40):
            log.append(b"%d" % number * 500)
        batches = log.read_arrow()
        found = next(batches).column("index").to_pylist()
        log.truncate_before(len(found))
        assert log.first_index > 0
        found += pa.Table.from_batches(batches).column("index").to_pylist()
        assert found == list(range(40))


def test_R86_dropped_records_are_an_error(tmp_path: Path) -> None:
    with Log.open(tmp_path / "log", segment_bytes=8192) as log:
        for number in range(40):
            log.append(b"%d" % number * 500)
        with Log.open(tmp_path / "log", readonly=True) as reader:
            log.truncate_before(30)
            with pytest.raises(LogIndexError, match="index 0"):
                list(reader.read_arrow(0))


def test_R86_without_pyarrow_the_error_names_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "pillarbox.log.arrow", raising=False)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with (
        Log.open(tmp_path / "log") as log,
        pytest.raises(ImportError, match=r"pip install .*arrow"),
    ):
        log.read_arrow()
