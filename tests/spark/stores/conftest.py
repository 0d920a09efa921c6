"""An S3 server for the tests of this folder, in the environment as a user has it."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("obstore")

from tests.spark.s3.server import Server, jars_or_skip, running


@pytest.fixture(scope="session")
def s3_server() -> Iterator[Server]:
    """One for all: Spark keeps the first that it is told of."""
    with running() as server:
        yield server


@pytest.fixture
def s3(s3_server: Server, monkeypatch: pytest.MonkeyPatch) -> Server:
    for name in [each for each in os.environ if each.startswith("AWS_")]:
        monkeypatch.delenv(name)
    for name, value in s3_server.variables.items():
        monkeypatch.setenv(name, value)
    return s3_server


@pytest.fixture
def place(s3: Server) -> str:
    """A URL where nothing is yet."""
    return s3.url(uuid.uuid4().hex)


@pytest.fixture
def s3_spark(spark: Any, s3: Server) -> Any:
    jars_or_skip()
    return spark
