"""R131: what a pipeline keeps on HDFS, without Spark. What is the same as on S3 is imported."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from pillarbox.pipeline import Pipeline
from pillarbox.pipeline.maintenance import FILES_MIN
from pillarbox.pipeline.paths import Paths
from pillarbox.pipeline.remote_backing import read_entries
from pillarbox.pipeline.running import acquire_run, is_running
from pillarbox.spark.errors import StorageError
from pillarbox.spark.files import Files, files_at, remote_files_at
from pillarbox.spark.hdfs_files import HdfsFiles
from pillarbox.spark.location import location_of
from pillarbox.spark.table import TableLog
from tests.spark.hdfs.lossy import lossy
from tests.spark.hdfs.server import Cluster
from tests.spark.s3 import test_storage as on_s3
from tests.spark.s3.test_storage import (  # noqa: F401 - run again, on HDFS
    STEP,
    file_of,
    numbers,
    recovery,
    table_at,
    test_R131_a_file_is_created_once_and_replaced_whole,
    test_R131_a_process_takes_batches_only_for_the_run_that_holds_the_pipeline,
    test_R131_a_reset_keeps_a_run_that_was_displaced_from_committing,
    test_R131_an_earlier_run_can_commit_nothing_more,
    test_R131_control_entries_without_a_claim_would_be_taken_for_ones_own,
    test_R131_nobody_has_run_there_yet,
)

#: A file of HDFS takes up to half a second: less often than on S3.
FEW = 3


@pytest.fixture
def files(place: str) -> Files:
    return files_at(place)


def test_R131_urls_of_hdfs_are_locations() -> None:
    assert location_of("hdfs://namenode:8020/shop/") == "hdfs://namenode:8020/shop"


def test_R131_the_later_run_claims_and_the_earlier_can_write_nothing_more(place: str) -> None:
    on_s3.test_R131_the_later_run_claims_and_the_earlier_can_write_nothing_more(place, FEW)


@pytest.mark.soak
def test_R131_soak_a_typed_log_on_hdfs(place: str) -> None:
    on_s3.test_R131_a_typed_log_on_a_remote_store(place, FILES_MIN)


def test_R131_of_many_that_create_a_file_one_succeeds(files: Files) -> None:
    done: list[int] = []

    def create(number: int) -> None:
        if files.create("folder/claim", b"%d" % number):
            done.append(number)

    threads = [threading.Thread(target=create, args=[number]) for number in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert files.read("folder/claim") == b"%d" % done[0]
    assert len(done) == 1
    assert files.names("folder") == ["claim"]


def test_R131_a_file_that_is_not_whole_is_not_seen(place: str) -> None:
    """As a process leaves it that is killed before it can give the file its name."""
    files = HdfsFiles(place)
    files._temporary("folder/claim", b"one")
    assert files.names("folder") == []
    assert files.create("folder/claim", b"two")


def test_R131_a_folder_moves_at_once_and_a_second_time_nothing_happens(files: Files) -> None:
    files.write("old/commits/0", b"done")
    for _ in range(2):
        files.move("old", "kept/new")
    assert (files.names("old"), files.read("kept/new/commits/0")) == ([], b"done")
    assert files.missing(["kept/new/commits/0", "old/commits/0"]) == ["old/commits/0"]
    files.remove("kept")
    assert files.names() == []


# -- answers that are lost -------------------------------------------------------------------------


def through(url: str, place: str) -> str:
    """A place, as it is reached through a proxy."""
    return f"{url}/{place.rpartition('/')[2]}"


def test_R131_a_file_whose_creation_was_not_confirmed_is_recognised(
    place: str, hdfs: Cluster
) -> None:
    with lossy(hdfs.port) as url:
        files = files_at(through(url, place))
        assert files.create("claim", b"one")
        assert not files.create("claim", b"two")
    assert files_at(place).read("claim") == b"one"
    with lossy(hdfs.port) as url:
        files_at(through(url, place)).write("claim", b"three")
    assert files_at(place).read("claim") == b"three"
    assert files_at(place).names() == ["claim"]


def test_R131_a_map_whose_confirmation_was_lost_is_recognised(place: str, hdfs: Cluster) -> None:
    with lossy(hdfs.port) as url, acquire_run(Paths(through(url, place))) as held:
        held.claim()
        held.backing().write(recovery(0))
        held.backing().write(recovery(1))
    assert read_entries(f"{place}/backing") == [recovery(0), recovery(1)]


@pytest.mark.parametrize("exactly_once", [True, False])
def test_R83_a_commit_whose_answer_was_lost_is_recognised(
    place: str, hdfs: Cluster, exactly_once: bool
) -> None:
    file = file_of(table_at(place), 1, 2)
    with lossy(hdfs.port) as url:
        assert TableLog(through(url, place)).commit([file], STEP, check=exactly_once)
    assert numbers(place) == [(0, 1), (1, 2)]


def test_R131_control_without_the_look_the_creation_would_seem_to_have_failed(
    place: str, hdfs: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(HdfsFiles, "read", lambda *_: b"of another")
    with lossy(hdfs.port) as url:
        assert not files_at(through(url, place)).create("claim", b"one")
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
    place: str, hdfs: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = table_at(place)
    file = file_of(table, 1, 2)
    monkeypatch.setattr(TableLog, "_was_entered", lambda *_: False)
    with lossy(hdfs.port) as url, pytest.raises(OSError, match="rename source"):
        TableLog(through(url, place)).commit([file], STEP, check=False)
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
def test_R131_a_url_without_a_namenode_is_named(url: str, hdfs: Cluster) -> None:
    pipeline = Pipeline("shop", path=url)
    with pytest.raises(StorageError, match=r"names no namenode; give its port.*HADOOP_CONF_DIR"):
        pipeline.run()


def test_R131_permission_that_is_denied_is_named(
    place: str, hdfs: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HADOOP_USER_NAME", "somebody")
    held = acquire_run(Paths(place))
    with pytest.raises(StorageError, match=r"permission denied.*HADOOP_USER_NAME.*user=somebody"):
        held.claim()
    monkeypatch.delenv("HADOOP_USER_NAME")
    assert not is_running(Paths(place))


def test_R131_clocks_apart_stop_a_run_before_it_writes(
    place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = HdfsFiles(place)
    files.write("claim", b"one")
    assert abs(files.clock_ahead_seconds("claim")) < 60
    ahead = HdfsFiles.clock_ahead_seconds
    monkeypatch.setattr(
        HdfsFiles, "clock_ahead_seconds", lambda self, name: ahead(self, name) + 3600
    )
    with acquire_run(Paths(place)) as held, pytest.raises(StorageError, match="seconds ahead of"):
        held.claim()
