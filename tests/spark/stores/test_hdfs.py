"""R131: what is HDFS's own: files that are whole when they have a name, namenodes and users."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pillarbox.pipeline import Pipeline
from pillarbox.pipeline.paths import Paths
from pillarbox.pipeline.running import acquire_run, is_running
from pillarbox.spark.errors import StorageError
from pillarbox.spark.files import files_at, remote_files_at
from pillarbox.spark.hdfs_files import HdfsFiles
from pillarbox.spark.location import location_of
from pillarbox.spark.table import TableLog
from tests.spark.stores.hdfs_server import Hdfs
from tests.spark.stores.test_storage import FIRST_COMMIT, STEP, file_of, numbers, table_at


@pytest.fixture
def store(hdfs: Hdfs) -> Hdfs:
    return hdfs


def test_R131_urls_of_hdfs_are_locations() -> None:
    assert location_of("hdfs://namenode:8020/shop/") == "hdfs://namenode:8020/shop"


def test_R131_a_file_that_is_not_whole_is_not_seen(place: str) -> None:
    """As a process leaves it that is killed before it can give the file its name."""
    files = HdfsFiles(place)
    files._temporary("folder/claim", b"one")
    assert files.names("folder") == []
    assert files.create("folder/claim", b"two")


def test_R131_control_without_the_look_the_creation_would_seem_to_have_failed(
    place: str, hdfs: Hdfs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(HdfsFiles, "read", lambda *_: b"of another")
    with hdfs.losing(place, "claim") as through:
        assert not files_at(through).create("claim", b"one")
    monkeypatch.undo()
    assert files_at(place).read("claim") == b"one"


def test_R83_a_commit_that_a_killed_process_has_begun_is_in_nobodys_way(place: str) -> None:
    """`deltalake` gives a commit its name when it is whole, too; what it had begun stays open."""
    table = table_at(place)
    begun = f"{place}/_delta_log/.{1:020}.json.tmp.1"
    killed = subprocess.run([sys.executable, "-c", _BEGIN, begun], check=False)
    assert killed.returncode == -signal.SIGKILL
    assert table.commit([file_of(table, 1, 2)], STEP)
    assert numbers(place) == [(0, 1), (1, 2)]


_BEGIN = """
import os, signal, sys, hdfs_native
_, _, host, path = sys.argv[1].split("/", 3)
file = hdfs_native.Client(f"hdfs://{host}").create(f"/{path}")
file.write(b"{")
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_R83_control_without_the_look_the_commit_would_seem_to_have_failed(
    place: str, hdfs: Hdfs, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = table_at(place)
    file = file_of(table, 1, 2)
    monkeypatch.setattr(TableLog, "_was_committed", lambda *_: False)
    with hdfs.losing(place, FIRST_COMMIT) as through, pytest.raises(OSError, match="rename source"):
        TableLog(through).commit([file], STEP, check=False)
    assert numbers(place) == [(0, 1), (1, 2)]


# -- what is wrong is said before anything is written ----------------------------------------------


def test_R131_a_namenode_that_does_not_answer_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """How patient the client is, the configuration of Hadoop says."""
    setting = "<name>dfs.client.failover.max.attempts</name><value>1</value>"
    site = f"<configuration><property>{setting}</property></configuration>"
    (tmp_path / "hdfs-site.xml").write_text(site)
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
    with pytest.raises(StorageError, match="can't be reached; check that it is running"):
        remote_files_at("hdfs://127.0.0.1:9/shop").check()


@pytest.mark.parametrize("url", ["hdfs://namenode/shop", "hdfs:///shop"])
def test_R131_a_url_without_a_namenode_is_named(url: str, hdfs: Hdfs) -> None:
    pipeline = Pipeline("shop", path=url)
    with pytest.raises(StorageError, match=r"names no namenode; give its port.*HADOOP_CONF_DIR"):
        pipeline.run()


def test_R131_permission_that_is_denied_is_named(
    place: str, hdfs: Hdfs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HADOOP_USER_NAME", "somebody")
    held = acquire_run(Paths(place))
    with pytest.raises(StorageError, match=r"permission denied.*HADOOP_USER_NAME.*user=somebody"):
        held.claim()
    monkeypatch.delenv("HADOOP_USER_NAME")
    assert not is_running(Paths(place))
