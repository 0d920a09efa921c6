"""R132: the processes of streaming sources are forked from one that has imported everything."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pillarbox.log import Log
from pillarbox.spark import fork_client
from tests.broker.support import eventually

SERVER = """
import os, sys
from pillarbox.spark import fork_server
fork_server.start(sys.argv[1])
sys.stdin.read()
"""
PROGRAM = """
import json, os, sys
imported = "pyspark.sql.datasource" in sys.modules
seen = imported, sys.argv[1:], os.environ["COLOUR"], os.getcwd(), sys.stdin.readline()
print(json.dumps(seen), flush=True)
sys.stdin.read()
sys.exit(7)
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "stand_in.py").write_text(PROGRAM)
    return tmp_path


@pytest.fixture
def served(place: Path) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    path = str(place / "socket")
    server = subprocess.Popen([sys.executable, "-c", SERVER, path], stdin=subprocess.PIPE)
    with server:
        eventually(lambda: os.path.exists(path))
        yield path, server
        server.kill()


def asked(place: Path, path: str) -> subprocess.Popen[str]:
    own = [sys.executable, "-I", "-S", fork_client.__file__, path]
    return subprocess.Popen(
        [*own, sys.executable, "-m", "stand_in", "red", "green"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=place,
        env={**os.environ, "PYTHONPATH": str(place), "COLOUR": "blue"},
    )


def said(program: subprocess.Popen[str]) -> object:
    assert program.stdin is not None
    assert program.stdout is not None
    print("hello", file=program.stdin, flush=True)
    return json.loads(program.stdout.readline())


def as_expected(place: Path, *, forked: bool) -> object:
    return [forked, ["red", "green"], "blue", str(place), "hello\n"]


def test_R132_a_fork_does_what_the_program_would_do(
    place: Path, served: tuple[str, subprocess.Popen[bytes]]
) -> None:
    for _ in range(2):
        with asked(place, served[0]) as program:
            assert said(program) == as_expected(place, forked=True)
            assert program.communicate()[1] == ""
            assert program.returncode == 7


def test_R132_where_nobody_serves_it_is_the_program_itself(place: Path) -> None:
    with asked(place, str(place / "nobody")) as program:
        assert said(program) == as_expected(place, forked=False)
        program.communicate()
        assert program.returncode == 7


def test_R132_a_program_whose_directory_was_removed_is_started_as_spark_would(
    served: tuple[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone() -> str:
        raise FileNotFoundError

    def become(_: str, command: list[str]) -> None:
        became.append(command)
        raise SystemExit

    became: list[list[str]] = []
    monkeypatch.setattr(os, "getcwd", gone)
    monkeypatch.setattr(os, "execv", become)
    command = [sys.executable, "-m", "stand_in"]
    with pytest.raises(SystemExit):
        fork_client.hand_over(served[0], command)
    assert became == [command]


def test_R132_a_fork_ends_with_the_one_who_asked(
    place: Path, served: tuple[str, subprocess.Popen[bytes]]
) -> None:
    with asked(place, served[0]) as program:
        said(program)
        assert program.stdout is not None
        os.kill(program.pid, signal.SIGKILL)
        assert program.stdout.read() == "", "the fork has this stream open as long as it lives"


def test_R132_the_server_ends_with_the_daemon(
    place: Path, served: tuple[str, subprocess.Popen[bytes]]
) -> None:
    path, daemon = served
    daemon.kill()
    eventually(lambda: not os.path.exists(path))
    with asked(place, path) as program:
        assert said(program) == as_expected(place, forked=False)
        program.kill()


def test_R132_the_source_of_a_query_is_forked(spark: SparkSession, tmp_path: Path) -> None:
    with Log.open(tmp_path / "log") as log:
        log.append(b"a letter")
    reader = spark.readStream.format("pillarbox").load(str(tmp_path / "log"))
    writer = reader.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "done"))
    query = writer.start()
    try:
        query.processAllAvailable()
        assert any(fork_client.__file__ in each for each in _commands())
    finally:
        query.stop()


def _commands() -> Iterator[str]:
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            yield process.read_text("utf-8", "replace").replace("\0", " ")
