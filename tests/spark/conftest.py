"""One Spark session for all tests of this process. Tests that kill have their own drivers."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from pillarbox import spark as on_spark
from tools.ivy import UnreachableError
from tools.s3_jars import jars

#: The first test of a session waits for Spark's own start, and for its Python workers'.
TIMEOUT_SECONDS = 400


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        here = item.path.is_relative_to(Path(__file__).parent)
        if here and not any(map(item.get_closest_marker, ("timeout", "soak"))):
            item.add_marker(pytest.mark.timeout(TIMEOUT_SECONDS))


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    conf = {"spark.sql.shuffle.partitions": "2"}
    with contextlib.suppress(UnreachableError):  # then the tests on S3 say so
        conf["spark.jars"] = ",".join(map(str, jars()))
    session = on_spark.session("local[2]", app_name="tests", conf=conf)
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()
