"""A standalone Spark cluster from the pip package: a master and workers, each its own process.

Its executors run a Python that has what Pillarbox needs, but not Pillarbox.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sysconfig
import time
import venv
from collections.abc import Iterator
from pathlib import Path

import pyspark

from pillarbox.spark.java import find_java

START_SECONDS = 240
SPARK_HOME = Path(pyspark.__file__).parent
MASTER = "org.apache.spark.deploy.master.Master"
WORKER = "org.apache.spark.deploy.worker.Worker"


def environment() -> dict[str, str]:
    """What every process of a cluster on this machine needs to know."""
    find_java()
    local = {"SPARK_HOME": str(SPARK_HOME), "SPARK_LOCAL_IP": "127.0.0.1"}
    return {k: v for k, v in os.environ.items() if k != "PYTHONPATH"} | local


@contextlib.contextmanager
def standalone(place: Path, workers: int = 2) -> Iterator[str]:
    """The URL of a cluster that is up; nothing of it is left afterwards."""
    with contextlib.ExitStack() as stack:
        where = ["--host", "127.0.0.1", "--webui-port", "0"]
        master = stack.enter_context(daemon(place, "master", MASTER, *where, "--port", "0"))
        url = said(master, r"Starting Spark master at (spark://\S+)")
        for number in range(workers):
            options = ["--cores", "1", "--memory", "1g", "--work-dir", str(place / str(number))]
            name = f"worker-{number}"
            worker = stack.enter_context(daemon(place, name, WORKER, *where, *options, url))
            said(worker, "Successfully registered with master")
        yield url


@contextlib.contextmanager
def daemon(
    place: Path, name: str, java_class: str, *options: str, **variables: str
) -> Iterator[Path]:
    """A process group of Spark's; the file that it logs to."""
    place.mkdir(parents=True, exist_ok=True)
    log = place / f"{name}.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [str(SPARK_HOME / "bin" / "spark-class"), java_class, *options],
            env=environment() | variables,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        yield log
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def said(log: Path, pattern: str) -> str:
    """Wait until this stands in a log; the part in parentheses, if there is one."""
    deadline = time.monotonic() + START_SECONDS
    while (found := re.search(pattern, log.read_text())) is None:
        assert time.monotonic() < deadline, log.read_text()[-4000:]
        time.sleep(0.05)
    return found[found.re.groups]


def bare_python(place: Path) -> str:
    """A Python with all packages that are installed here but for those that are editable."""
    venv.create(place, with_pip=False, symlinks=True)
    here = sysconfig.get_paths()["purelib"]
    version = f"python{sysconfig.get_python_version()}"
    (place / "lib" / version / "site-packages" / "here.pth").write_text(here)
    python = str(place / "bin" / "python")
    missing = subprocess.run([python, "-c", "import pillarbox"], capture_output=True, check=False)
    assert missing.returncode != 0, "the package is there without having been sent"
    return python
