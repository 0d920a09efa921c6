"""R81, R131: a cluster whose driver and workers share no directory, over S3.

Each worker is in a mount namespace of its own, in which the place of the test is an empty file
system; none of them has the store's credentials in its environment. They have the same software.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pillarbox.spark.table import TableLog
from tests.spark.pipeline.cluster import (
    MASTER,
    SPARK_HOME,
    WORKER,
    bare_python,
    daemon,
    environment,
    said,
)
from tests.spark.pipeline.test_cluster import COUNT, MODULE
from tests.spark.stores.s3_server import S3, jars_or_skip
from tests.spark.stores.store import on


@contextlib.contextmanager
def apart(place: Path, workers: int = 2) -> Iterator[str]:
    """The URL of a cluster whose workers see nothing of the place of the test."""
    where = ["--host", "127.0.0.1", "--webui-port", "0"]
    with contextlib.ExitStack() as stack:
        master = stack.enter_context(daemon(place, "master", MASTER, *where, "--port", "0"))
        url = said(master, r"Starting Spark master at (spark://\S+)")
        for number in range(workers):
            options = ["--cores", "1", "--memory", "1g", "--work-dir", f"{place}/work"]
            command = [f"{SPARK_HOME}/bin/spark-class", WORKER, *where, *options, url]
            log = place / f"worker-{number}.log"
            stack.enter_context(_in_a_namespace(place, log, command))
            said(log, "Successfully registered with master")
        yield url


@contextlib.contextmanager
def _in_a_namespace(place: Path, log: Path, command: list[str]) -> Iterator[None]:
    quoted = shlex.quote(str(place))
    # The interpreter of the executors is software: it is mounted again, to be read.
    python = shlex.quote(f"{place}/bare")
    script = (
        f"mkdir -p /run/pillarbox-bare && mount --bind {python} /run/pillarbox-bare &&"
        f" mount -t tmpfs none {quoted} && mkdir {python} &&"
        f" mount --bind -o ro /run/pillarbox-bare {python} && exec {shlex.join(command)}"
    )
    known = {k: v for k, v in environment().items() if not k.startswith("AWS_")}
    with log.open("wb") as output:
        process = subprocess.Popen(
            ["unshare", "--mount", "--propagation", "private", "sh", "-c", script],
            env=known,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, 9)
        process.wait()


def numbers(url: str) -> Counter[Any]:
    return Counter(row["number"] for _, row in TableLog(url).rows())


@pytest.mark.soak
@pytest.mark.timeout(1800)
@on("s3")
def test_R131_soak_a_cluster_without_a_shared_directory(tmp_path: Path, place: str, s3: S3) -> None:
    if os.geteuid() != 0:
        pytest.skip("mount namespaces need root")
    driver, cluster = tmp_path / "driver", tmp_path / "cluster"
    driver.mkdir()
    module = MODULE.replace('path="./state"', f'path="{place}"')
    for name in ("words", "others"):
        module = module.replace(f', url="file:./{name}"', "")
        module += f"""
@pipeline.source(outputs="{name}", id="send_{name}")
def send_{name}():
    yield [Word(number, f"word {{number}}") for number in range({COUNT})]
"""
    (driver / "shop_on_cluster.py").write_text(module)
    cluster.mkdir()
    python = bare_python(cluster / "bare")
    command = ["pipeline", "run", "shop_on_cluster:pipeline", "--now", "--max-rows", "200"]
    command += [
        "--conf",
        "spark.sql.shuffle.partitions=2",
        "--conf",
        f"spark.jars={jars_or_skip()}",
    ]
    with apart(cluster) as master:
        done = subprocess.run(
            [sys.executable, "-m", "pillarbox.cli", *command, "--master", master],
            cwd=driver,
            env=environment()
            | s3.variables
            | {"PYSPARK_PYTHON": python, "PYSPARK_DRIVER_PYTHON": sys.executable},
            capture_output=True,
            text=True,
            check=False,
            timeout=1500,
        )
        assert done.returncode == 0, done.stderr[-4000:]
    assert not (cluster / "work").exists(), "a worker wrote where others could see it"
    assert {each.name for each in driver.iterdir()} <= {"shop_on_cluster.py", "__pycache__"}
    logs = f"{place}/logs"
    assert numbers(f"{logs}/copied") == numbers(f"{logs}/joined") == Counter(range(COUNT))
    assert numbers(f"{logs}/left") == Counter(range(0, COUNT, 2))
    assert numbers(f"{logs}/right") == Counter(range(1, COUNT, 2))
