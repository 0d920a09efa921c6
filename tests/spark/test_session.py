"""R81: what a session of ours sets, so that Python workers come up quickly."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from pillarbox.spark.python import choose_python
from pillarbox.spark.session import quick_workers

DAEMON = b"pillarbox.spark.daemon"


def test_R81_workers_are_forked_from_a_process_that_knows_the_data_source(spark: Any) -> None:
    def parent(_: int) -> bytes:
        return Path(f"/proc/{os.getppid()}/cmdline").read_bytes()

    (found,) = spark.sparkContext.parallelize([0], 1).map(parent).collect()
    assert DAEMON in found.split(b"\0")


def test_R81_elsewhere_workers_are_left_to_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    assert quick_workers("local[2]") == {"spark.python.daemon.module": DAEMON.decode()}
    assert quick_workers("local-cluster[2,1,1024]") == {}
    assert quick_workers("spark://host:7077") == {}
    for python, ours in ((sys.executable, True), ("/opt/another/bin/python", False)):
        monkeypatch.setenv("PYSPARK_PYTHON", python)
        monkeypatch.setenv("PYSPARK_DRIVER_PYTHON", python)
        assert choose_python(local=True) is ours
        assert os.environ["PYSPARK_PYTHON"] == python
