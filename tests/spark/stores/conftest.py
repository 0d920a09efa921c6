"""Where a pipeline can be kept: a directory, an S3 server, an HDFS. Most tests run on several.

`store` is S3 and HDFS in turn, unless a test names others: `@on("s3")`.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("obstore")

from tests.spark.stores import hdfs_server, s3_server
from tests.spark.stores.store import Directory, Store


@pytest.fixture
def directory(tmp_path: Path) -> Directory:
    return Directory(str(tmp_path))


@pytest.fixture(scope="session")
def s3_for_all() -> Iterator[s3_server.S3]:
    """One for all: Spark keeps the first that it is told of."""
    with s3_server.running() as server:
        yield server


@pytest.fixture
def s3(s3_for_all: s3_server.S3, monkeypatch: pytest.MonkeyPatch) -> s3_server.S3:
    for name in [each for each in os.environ if each.startswith("AWS_")]:
        monkeypatch.delenv(name)
    for name, value in s3_for_all.variables.items():
        monkeypatch.setenv(name, value)
    return s3_for_all


@pytest.fixture(scope="session")
def hdfs_for_all(tmp_path_factory: pytest.TempPathFactory) -> Iterator[hdfs_server.Hdfs]:
    with hdfs_server.running(tmp_path_factory.mktemp("hdfs")) as cluster:
        yield cluster


@pytest.fixture
def hdfs(hdfs_for_all: hdfs_server.Hdfs, monkeypatch: pytest.MonkeyPatch) -> hdfs_server.Hdfs:
    for name in ("HADOOP_CONF_DIR", "HADOOP_HOME", "HADOOP_USER_NAME"):
        monkeypatch.delenv(name, raising=False)
    return hdfs_for_all


@pytest.fixture(params=["s3", "hdfs"])
def store(request: pytest.FixtureRequest) -> Any:
    return request.getfixturevalue(request.param)


@pytest.fixture
def place(store: Store) -> str:
    """A URL where nothing is yet."""
    return store.url(uuid.uuid4().hex)


@pytest.fixture
def store_spark(spark: Any, store: Store) -> Any:
    """A session that reaches the store."""
    store.need_jars()
    return spark
