"""R81, R86: Spark Connect, and Spark's own declarative pipelines, which need it.

What they need beside PySpark (`pip install 'pyspark[connect]' pyyaml`) is no requirement of ours:
without it, those tests say so and are left out.
"""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pillarbox.cli import run as command
from tests.spark.pipeline.cluster import SPARK_HOME, daemon, environment, said
from tests.spark.pipeline.support import read, write

WORDS = [b"one", b"two", b"three"]
ROOT = Path(__file__).parents[3]


MODULE = """
from pillarbox.pipeline import Pipeline

pipeline = Pipeline("p", path="./p")
pipeline.log("words", str)

@pipeline.source(outputs="words")
def talk():
    yield "hello"
"""


def test_R81_a_pipeline_says_what_spark_connect_can_not_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "shop_for_connect.py").write_text(MODULE)
    assert command(["pipeline", "run", "shop_for_connect:pipeline", "--master", "sc://a:1"]) == 1
    assert "with Spark Connect that is the server; run it there" in capsys.readouterr().err


@pytest.fixture
def connect(tmp_path: Path) -> Iterator[str]:
    """The address of a Connect server; Pillarbox is installed there, as streams need it."""
    pytest.importorskip("grpc", reason="needs pip install 'pyspark[connect]'")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer"]
    server += ["--conf", f"spark.connect.grpc.binding.port={port}", "--master", "local[2]"]
    server += ["--conf", "spark.ui.enabled=false", "spark-internal"]
    python = {"PYSPARK_PYTHON": sys.executable, "PYTHONPATH": str(ROOT / "src")}
    submit = "org.apache.spark.deploy.SparkSubmit"
    with daemon(tmp_path, "connect", submit, *server, **python) as log:
        said(log, "Spark Connect server started")
        yield f"sc://127.0.0.1:{port}"


CLIENT = """
import sys
from pillarbox import spark as on_spark
spark = on_spark.session(sys.argv[1])
place = sys.argv[2]
rows = spark.readStream.format("pillarbox").schema("body BINARY").load(f"{place}/words")
writer = rows.writeStream.format("pillarbox").option("processor", "p")
writer = writer.option("checkpointLocation", f"{place}/checkpoint").trigger(availableNow=True)
writer.start(f"{place}/out").awaitTermination()
assert spark.read.format("pillarbox").load(f"{place}/out").count() == 3
"""


@pytest.mark.soak
@pytest.mark.timeout(1500)
def test_R86_a_stream_through_spark_connect(connect: str, tmp_path: Path) -> None:
    write(tmp_path / "words", WORDS)
    subprocess.run([sys.executable, "-c", CLIENT, connect, str(tmp_path)], check=True, timeout=600)
    assert read(tmp_path / "out") == WORDS


SPEC = """
name: words
storage: file://{place}/storage
libraries:
  - glob:
      include: transformations/**
"""
TRANSFORMATION = """
from pyspark import pipelines as dp
from pyspark.sql import SparkSession

spark = SparkSession.active()

@dp.temporary_view
def words():
    return spark.readStream.format("pillarbox").schema("body BINARY").load("{place}/words")

dp.create_sink("out", "pillarbox", {{"path": "{place}/out", "processor": "copied"}})

@dp.append_flow(target="out")
def copied():
    return spark.readStream.table("words")
"""


@pytest.mark.soak
@pytest.mark.timeout(1500)
def test_R86_a_declarative_pipeline_of_sparks_own_reads_and_writes_logs(tmp_path: Path) -> None:
    pytest.importorskip("grpc", reason="needs pip install 'pyspark[connect]'")
    pytest.importorskip("yaml", reason="needs pip install pyyaml")
    write(tmp_path / "words", WORDS)
    (tmp_path / "transformations").mkdir()
    (tmp_path / "transformations" / "words.py").write_text(TRANSFORMATION.format(place=tmp_path))
    (tmp_path / "pipeline.yml").write_text(SPEC.format(place=tmp_path))
    python = {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
    for _ in range(2):  # the second time there is nothing to do
        subprocess.run(
            [SPARK_HOME / "bin" / "spark-pipelines", "run", "--spec", "pipeline.yml"],
            cwd=tmp_path,
            env=environment() | python | {"PYTHONPATH": str(ROOT / "src")},
            check=True,
            timeout=600,
        )
        assert sorted(read(tmp_path / "out")) == sorted(WORDS)
