"""A small HDFS in a process of its own: a namenode and a datanode."""

from __future__ import annotations

import contextlib
import json
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from pillarbox.spark.java import find_java
from tests.spark.stores.hdfs_lossy import lossy
from tests.spark.stores.store import Store
from tools.hdfs_jars import jars
from tools.ivy import UnreachableError

START_SECONDS = 300
_MAIN = "org.apache.hadoop.test.MiniDFSClusterManager"


@dataclass(frozen=True)
class Hdfs(Store):
    """A running HDFS. A file takes up to half a second."""

    port: int
    many = 3

    def url(self, name: str) -> str:
        return f"hdfs://127.0.0.1:{self.port}/{name}"

    @contextlib.contextmanager
    def losing(self, place: str, part: str, count: int = 1) -> Iterator[str]:
        """Of the first file that is given its name, whatever that is."""
        with lossy(self.port) as proxy:
            yield f"{proxy}/{place.rpartition('/')[2]}"


@contextlib.contextmanager
def running(place: Path) -> Iterator[Hdfs]:
    """An empty HDFS, while this lasts."""
    try:
        path = ":".join(map(str, jars()))
    except UnreachableError as error:
        pytest.skip(str(error).splitlines()[0])
    details = place / "details.json"
    command = [f"{find_java()}/bin/java", "-Xmx512m", "-XX:TieredStopAtLevel=1"]
    command += [f"-Dtest.build.data={place}", "-cp", path, _MAIN, "-datanodes", "1", "-format"]
    command += ["-writeDetails", str(details)]
    with (place / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, cwd=place)
    try:
        yield Hdfs(_port(process, details))
    finally:
        process.kill()
        process.wait()


def _port(process: subprocess.Popen[bytes], details: Path) -> int:
    deadline = time.monotonic() + START_SECONDS
    while True:
        with contextlib.suppress(OSError, ValueError):
            return int(json.loads(details.read_text())["namenode_port"])
        said = (details.parent / "log").read_text()[-4000:]
        assert process.poll() is None, f"HDFS has ended:\n{said}"
        assert time.monotonic() < deadline, f"HDFS does not come up:\n{said}"
        time.sleep(0.05)
