"""R75: the commands that only read work while another process writes; the others name it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pillarbox.cli.repair import SharedDisk
from pillarbox.log import Log, verify
from tests.cli.support import as_json, pillarbox


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "tests.cli.writer_process", str(tmp_path / "data")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process
        process.kill()


def test_R75_reading_commands_work_beside_the_writer(
    writer: subprocess.Popen[str], tmp_path: Path
) -> None:
    store = tmp_path / "data"
    known = as_json(pillarbox("log", "info", store, "--json"))
    assert known["in_use_by_pid"] == writer.pid
    assert known["durability"].startswith("fsync")
    assert {each["name"]: each["ready"] for each in known["queues"]}["notes"] >= 1
    assert as_json(pillarbox("log", "ls", store, "--json"))["segments"][-1]["state"] == "open"
    assert as_json(pillarbox("log", "verify", store, "--json"))["healthy"]
    assert pillarbox("log", "cat", store, "--limit", "3").returncode == 0
    assert writer.poll() is None


@pytest.mark.parametrize("words", [("compact",), ("repair", "--yes")])
def test_R75_writing_commands_name_the_process_that_is_in_the_way(
    words: tuple[str, ...], writer: subprocess.Popen[str], tmp_path: Path
) -> None:
    done = pillarbox("log", words[0], tmp_path / "data", *words[1:])
    assert (done.returncode, done.stdout) == (1, "")
    assert f"in use by process {writer.pid}" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_R75_cat_follows_the_writer_until_it_is_interrupted(
    writer: subprocess.Popen[str], tmp_path: Path
) -> None:
    end = as_json(pillarbox("log", "info", tmp_path / "data", "--json"))["end_index"]
    url = f"file:{tmp_path}/data/notes"
    command = [sys.executable, "-m", "pillarbox.cli", "log", "cat", url, "--follow", "--json"]
    command += ["--from", str(end)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as following:
        assert following.stdout is not None
        seen = [json.loads(following.stdout.readline()) for _ in range(50)]
        following.send_signal(signal.SIGINT)
        following.stdout.close()
        assert following.wait(10) == 0
    indices = [each["index"] for each in seen]
    assert indices == sorted(set(indices))
    assert {each["body"] for each in seen} == {"tick"}


def test_R75_after_a_killed_writer_nobody_has_the_store(
    writer: subprocess.Popen[str], tmp_path: Path
) -> None:
    writer.kill()
    writer.wait()
    assert as_json(pillarbox("log", "info", tmp_path / "data", "--json"))["in_use_by_pid"] is None
    assert pillarbox("log", "compact", tmp_path / "data").returncode == 0


def test_R75_verify_survives_a_segment_that_is_sealed_under_it(tmp_path: Path) -> None:
    log = Log.open(tmp_path / "log", segment_bytes=1 << 20)
    log.append(b"x")

    class SealedJustNow(SharedDisk):
        def map(self, handle: int, size: int) -> bytes:  # type: ignore[override]
            image = super().map(handle, size)
            log.close()
            return image  # type: ignore[return-value]

    name = next((tmp_path / "log").glob("*.seg")).name
    assert verify(tmp_path / "log", disk=SealedJustNow(name)).records == 1
