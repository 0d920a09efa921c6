"""An HDFS for the tests of this folder."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from tests.spark.hdfs.server import Cluster, running


@pytest.fixture(scope="session")
def hdfs_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running(tmp_path_factory.mktemp("hdfs")) as cluster:
        yield cluster


@pytest.fixture
def hdfs(hdfs_cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    for name in ("HADOOP_CONF_DIR", "HADOOP_HOME", "HADOOP_USER_NAME"):
        monkeypatch.delenv(name, raising=False)
    return hdfs_cluster


@pytest.fixture
def place(hdfs: Cluster) -> str:
    """A URL where nothing is yet."""
    return f"{hdfs.url}/{uuid.uuid4().hex}"
