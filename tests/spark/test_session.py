"""R81: what a session of ours sets, so that Python workers come up quickly."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pillarbox.log import Log
from pillarbox.spark.python import choose_python
from pillarbox.spark.session import WORKER_DEFAULTS, quick_workers

DAEMON = b"pillarbox.spark.daemon"


def test_R81_workers_are_forked_from_a_process_that_knows_the_data_source(spark: Any) -> None:
    def parent(_: int) -> bytes:
        return Path(f"/proc/{os.getppid()}/cmdline").read_bytes()

    (found,) = spark.sparkContext.parallelize([0], 1).map(parent).collect()
    assert DAEMON in found.split(b"\0")


def test_R81_elsewhere_workers_are_left_to_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    assert quick_workers("local[2]") == WORKER_DEFAULTS
    assert quick_workers("local-cluster[2,1,1024]") == {}
    assert quick_workers("spark://host:7077") == {}
    for python, ours in ((sys.executable, True), ("/opt/another/bin/python", False)):
        monkeypatch.setenv("PYSPARK_PYTHON", python)
        monkeypatch.setenv("PYSPARK_DRIVER_PYTHON", python)
        assert choose_python(local=True) is ours
        assert os.environ["PYSPARK_PYTHON"] == python


DRIVER = """
import json, sys
from pillarbox import spark
session = spark.session("local[2]", conf=json.loads(sys.argv[2]))
session.sparkContext.setLogLevel("OFF")
frame = session.read.format("pillarbox").load(sys.argv[1])
for _ in range(12):
    print(len(frame.limit(5).collect()))
session.stop()
"""


def complaints(log: Path, **conf: str) -> str:
    """What a driver has to read that looks at the first of many messages."""
    command = (sys.executable, "-c", DRIVER, str(log), json.dumps(conf))
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["5"] * 12
    return done.stderr


def test_R81_a_worker_that_spark_hangs_up_on_ends_without_a_word(tmp_path: Path) -> None:
    with Log.open(tmp_path / "log", durability="os") as log:
        for _ in range(100):
            log.append_many([bytes(1000)] * 1000)
    assert "Traceback" not in complaints(tmp_path / "log")
    sparks_own = {"spark.python.daemon.module": "pyspark.daemon"}
    assert "BrokenPipeError" in complaints(tmp_path / "log", **sparks_own)
