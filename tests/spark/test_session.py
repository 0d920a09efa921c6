"""R81: what a session of ours sets, so that Python workers come up quickly."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
import zipimport
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from zipfile import ZipFile

import pytest

from pillarbox.spark import daemon
from pillarbox.spark.python import choose_python
from pillarbox.spark.session import WORKER_DEFAULTS, worker_settings
from tests.spark.pipeline.support import write

DAEMON = b"pillarbox.spark.daemon"


def test_R81_workers_are_forked_from_a_process_that_knows_the_data_source(spark: Any) -> None:
    def parent(_: int) -> bytes:
        return Path(f"/proc/{os.getppid()}/cmdline").read_bytes()

    (found,) = spark.sparkContext.parallelize([0], 1).map(parent).collect()
    assert DAEMON in found.split(b"\0")


def test_R81_elsewhere_workers_are_left_to_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    assert worker_settings("local[2]") == WORKER_DEFAULTS
    assert worker_settings("local-cluster[2,1,1024]") == {}
    assert worker_settings("spark://host:7077") == {}
    for python, ours in ((sys.executable, True), ("/opt/another/bin/python", False)):
        monkeypatch.setenv("PYSPARK_PYTHON", python)
        monkeypatch.setenv("PYSPARK_DRIVER_PYTHON", python)
        assert choose_python(local=True) is ours
        assert os.environ["PYSPARK_PYTHON"] == python


def complaints(module: str, place: str) -> str:
    """What a daemon says when the other end of a worker's socket is closed."""
    variables = {
        "PYTHON_UNIX_DOMAIN_ENABLED": "true",
        "PYTHON_WORKER_FACTORY_SOCK_DIR": place,
        "PYTHON_DAEMON_KILL_WORKER_ON_FLUSH_FAILURE": "true",
    }
    daemon = subprocess.Popen(
        [sys.executable, "-m", module, "pyspark.worker"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=os.environ | variables,
    )
    assert daemon.stdin is not None
    assert daemon.stdout is not None
    path = daemon.stdout.read(int.from_bytes(daemon.stdout.read(4)))
    with socket.socket(socket.AF_UNIX) as line:
        line.connect(path)
        worker = int.from_bytes(line.recv(4))
        line.sendall(bytes(1000))  # nonsense, of which it will want to tell
    while Path(f"/proc/{worker}").exists():
        time.sleep(0.01)
    return daemon.communicate()[1].decode()


def test_R81_a_worker_that_spark_hangs_up_on_ends_without_a_word() -> None:
    with TemporaryDirectory() as place:  # a short name: sockets have no long ones
        assert complaints(DAEMON.decode(), place) == ""
        assert "BrokenPipeError" in complaints("pyspark.daemon", place)


def test_R81_the_modules_of_a_zip_are_listed_after_its_caches_were_invalidated(
    tmp_path: Path,
) -> None:
    """Spark does both before it finds the data source; Python 3.13 alone can't (gh-121342)."""
    path = tmp_path / "packed.zip"
    with ZipFile(path, "w") as packed:
        packed.writestr("of_the_user.py", "")
    importer = zipimport.zipimporter(str(path))
    importer.invalidate_caches()
    assert list(daemon._modules_of_zip(importer)) == [("of_the_user", False)]


KILLING = """
import os, signal
try:
    os.unlink({marker!r})
except FileNotFoundError:
    pass
else:
    os.kill(os.getpid(), signal.SIGKILL)
"""
READING = """
import sys
from pillarbox import spark as on_spark
spark = on_spark.session("local[1]")
assert spark.read.format("pillarbox").load(sys.argv[1]).count() == 2
stream = spark.readStream.format("pillarbox").schema("body BINARY").load(sys.argv[1])
written = stream.writeStream.format("memory").queryName("seen").trigger(availableNow=True)
written.option("checkpointLocation", sys.argv[2]).start().awaitTermination()
assert spark.table("seen").count() == 2
"""


def test_R83_the_data_source_is_found_if_the_process_that_looks_for_it_is_killed(
    tmp_path: Path,
) -> None:
    """Spark looks into each `pyspark_...` module on the path, once for a session."""
    write(tmp_path / "words", [b"one", b"two"])
    marker = tmp_path / "not killed yet"
    marker.touch()
    (tmp_path / "pyspark_killing.py").write_text(KILLING.format(marker=str(marker)))
    done = subprocess.run(
        [sys.executable, "-c", READING, str(tmp_path / "words"), str(tmp_path / "checkpoint")],
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert not marker.exists()


JOB = """
import sys
from pyspark.sql import SparkSession
from pillarbox import spark as on_spark
from pillarbox.spark import java
java.find_java()
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
on_spark.register(spark)
rows = spark.read.format("pillarbox").load(sys.argv[1])
assert [bytes(row.body) for row in rows.collect()] == [b"one", b"two"]
stream = spark.readStream.format("pillarbox").schema("body BINARY").load(sys.argv[1])
written = stream.writeStream.format("memory").queryName("seen").trigger(availableNow=True)
written.option("checkpointLocation", sys.argv[2]).start().awaitTermination()
assert spark.table("seen").count() == 2
"""


def test_R86_a_session_of_the_users_own_needs_no_activated_environment(tmp_path: Path) -> None:
    """The `python3` on PATH knows neither PySpark nor Pillarbox."""
    write(tmp_path / "words", [b"one", b"two"])
    (tmp_path / "job.py").write_text(JOB)
    bare = tmp_path / "bin"
    bare.mkdir()
    (bare / "python3").write_text(f'#!/bin/sh\nexec {sys.executable} -S -E "$@"\n')
    (bare / "python3").chmod(0o755)
    chosen = ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "PYTHONPATH", "VIRTUAL_ENV")
    variables = {k: v for k, v in os.environ.items() if k not in chosen}
    done = subprocess.run(
        [sys.executable, "job.py", "words", str(tmp_path / "checkpoint")],
        cwd=tmp_path,
        env=variables | {"PATH": f"{bare}:/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-3000:]
