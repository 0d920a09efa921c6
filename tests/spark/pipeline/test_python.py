"""R81: which Python Spark's workers run, and that it takes the PySpark that is compiled."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pillarbox.spark.python import choose_python

WHERE = "import sys, pyspark; print(pyspark.__file__); print(sys.path)"


@pytest.fixture
def variables(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "SPARK_HOME"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return monkeypatch


def test_R81_workers_import_the_installed_pyspark_and_keep_the_rest_of_the_path(
    variables: pytest.MonkeyPatch,
) -> None:
    import pyspark

    home = Path(pyspark.__file__).parent / "python" / "lib"
    zips = [str(home / "pyspark.zip"), *map(str, home.glob("py4j-*-src.zip"))]
    choose_python(local=True)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([*zips, "/a place", "/another"])}
    command = [os.environ["PYSPARK_PYTHON"], "-c", WHERE]
    found = subprocess.check_output(command, env=environment, text=True)
    assert found.splitlines()[0] == pyspark.__file__
    assert "['', '/a place', '/another', " in found
    # Without the script it is the zip that is imported, and compiled each time.
    command = [sys.executable, "-c", WHERE]
    plain = subprocess.check_output(command, env=environment, text=True)
    assert plain.startswith(zips[0])


def test_R81_a_choice_of_the_user_stays_and_a_cluster_gets_a_python_that_it_can_have(
    variables: pytest.MonkeyPatch,
) -> None:
    choose_python(local=True)
    quick = os.environ["PYSPARK_PYTHON"]
    assert quick == os.environ["PYSPARK_DRIVER_PYTHON"] != sys.executable
    choose_python(local=False)
    assert os.environ["PYSPARK_PYTHON"] == sys.executable
    variables.setenv("PYSPARK_PYTHON", "/opt/python")
    choose_python(local=True)
    assert os.environ["PYSPARK_PYTHON"] == "/opt/python"
    variables.delenv("PYSPARK_PYTHON")
    variables.setenv("SPARK_HOME", "/opt/spark")  # another PySpark than the one that is installed
    choose_python(local=True)
    assert os.environ["PYSPARK_PYTHON"] == sys.executable


def test_R81_workers_that_plan_come_from_our_daemon_too(variables: pytest.MonkeyPatch) -> None:
    choose_python(local=True)
    command = [os.environ["PYSPARK_PYTHON"], "-m", "pyspark.daemon", "pyspark.worker"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as daemon:
        assert daemon.stdout is not None
        assert daemon.stdout.read(4)  # its port, so it is up
        started = Path(f"/proc/{daemon.pid}/cmdline").read_bytes().split(b"\0")
        daemon.communicate()
    assert started[1:4] == [b"-m", b"pillarbox.spark.daemon", b"pyspark.worker"]
