"""R81: one definition, on a standalone cluster whose executors have never heard of Pillarbox."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.spark.pipeline.cluster import bare_python, environment, standalone
from tests.spark.pipeline.support import read_json, write

MODULE = """
from msgspec import Struct
from pillarbox.pipeline import Pipeline

class Word(Struct):
    number: int
    text: str

pipeline = Pipeline("shop", path="./state")
pipeline.log("words", Word, url="file:./words")
pipeline.log("others", Word, url="file:./others")
for name in ("copied", "joined", "left", "right"):
    pipeline.log(name, Word)

@pipeline.stream(inputs="words", outputs="copied", each=True)
def copy(word: Word) -> Word:
    return word

@pipeline.stream(inputs=["copied", "others"], outputs="joined")
def join(words, others):
    return words.join(others.select("number"), "number").select("number", "text")

@pipeline.stream(inputs="joined", outputs=["left", "right"])
def split(words):
    return {"left": words.where("number % 2 = 0"), "right": words.where("number % 2 = 1")}
"""
COUNT = 400


def run(place: Path, master: str, **variables: str) -> subprocess.CompletedProcess[str]:
    command = ["pipeline", "run", "shop_on_cluster:pipeline", "--now", "--max-rows", "200"]
    command += ["--conf", "spark.sql.shuffle.partitions=2"]
    return subprocess.run(
        [sys.executable, "-m", "pillarbox.cli", *command, "--master", master],
        cwd=place,
        env=environment() | variables,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )


def prepare(place: Path) -> None:
    (place / "shop_on_cluster.py").write_text(MODULE)
    for name in ("words", "others"):
        write(place / name, [{"number": n, "text": f"word {n}"} for n in range(COUNT)])


def check(place: Path) -> None:
    logs = place / "state" / "logs"
    found = {name: read_json(logs / name) for name in ("copied", "joined", "left", "right")}
    numbers = {name: Counter(each["number"] for each in rows) for name, rows in found.items()}
    assert numbers["copied"] == numbers["joined"] == Counter(range(COUNT))
    assert numbers["left"] == Counter(range(0, COUNT, 2))
    assert numbers["right"] == Counter(range(1, COUNT, 2))


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_R81_a_standalone_cluster_is_sent_all_it_needs(tmp_path: Path) -> None:
    prepare(tmp_path)
    python = bare_python(tmp_path / "bare")
    with standalone(tmp_path / "cluster") as master:
        done = run(tmp_path, master, PYSPARK_PYTHON=python, PYSPARK_DRIVER_PYTHON=sys.executable)
        assert done.returncode == 0, done.stderr[-4000:]
        executors = list((tmp_path / "cluster").glob("?/app-*/*/stderr"))
        assert {each.parts[-4] for each in executors} == {"0", "1"}, "a worker had nothing to do"
        sent = {each.name for each in (tmp_path / "cluster").glob("?/app-*/*/*.[pz]*")}
        assert sent >= {"pillarbox.zip", "shop_on_cluster.py"}
    check(tmp_path)
    status = json.loads((tmp_path / "state" / "status.json").read_text())
    assert status["master"] == master
