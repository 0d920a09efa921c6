"""R81, R86: Spark Connect, and Spark's own declarative pipelines, which need it.

What they need beside PySpark is in an environment of its own: where pandas is, every Python
worker of Spark imports it, which is slow.
"""

from __future__ import annotations

import functools
import json
import random
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyarrow.dataset import dataset

from pillarbox.log import Log, LogError
from pillarbox.pipeline.connect import inputs_in_text
from pillarbox.pipeline.inspection import inspect
from pillarbox.pipeline.paths import Paths
from pillarbox.pipeline.plan import inputs_in_plan
from pillarbox.pipeline.running import is_running
from pillarbox.spark.session import WORKER_DEFAULTS
from pillarbox.spark.table import table_at
from tests.environments import ROOT, python_with
from tests.spark.pipeline.cluster import SPARK_HOME, daemon, environment, said
from tests.spark.pipeline.driver import TOPOLOGIES, words
from tests.spark.pipeline.support import hashes, maps, read, read_json, write

WORDS = [b"one", b"two", b"three"]


@pytest.fixture(scope="session")
def python() -> str:
    """A Python with all that is here, and with what Spark Connect needs."""
    lock = ROOT / "requirements" / "connect.lock"
    return str(python_with("connect", lock, and_ours=True))


@contextmanager
def connect_server(place: Path, python: str) -> Iterator[str]:
    """The address of a Connect server; Pillarbox is installed there, as streams need it."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer"]
    server += ["--conf", f"spark.connect.grpc.binding.port={port}", "--master", "local[2]"]
    for key, value in WORKER_DEFAULTS.items():
        server += ["--conf", f"{key}={value}"]
    server += ["--conf", "spark.ui.enabled=false", "spark-internal"]
    submit = "org.apache.spark.deploy.SparkSubmit"
    # Its name keeps the log of one server from those of others in the same place.
    name = f"connect-{port}"
    with daemon(place, name, submit, *server, PYSPARK_PYTHON=python) as log:
        said(log, "Spark Connect server started")
        yield f"sc://127.0.0.1:{port}"


@pytest.fixture
def connect(tmp_path: Path, python: str) -> Iterator[str]:
    with connect_server(tmp_path / "server", python) as address:
        yield address


SHOP = """
from collections.abc import Iterator

import msgspec
import own_prices
from pillarbox.pipeline import Pipeline, sinks

class Order(msgspec.Struct):
    id: int
    amount: int

RATE = own_prices.RATE
pipeline = Pipeline("shop", path="./shop")
orders = pipeline.log("orders", Order)
doubled = pipeline.log("doubled", Order)
large = pipeline.log("large", Order)
totals = sinks.parquet("./archive")

@pipeline.source(outputs=orders)
def arrive() -> Iterator[Order]:
    for number in range(40):
        yield Order(number, number)

@pipeline.stream(inputs=orders, outputs=doubled, each=True)
def double(order: Order) -> Order:
    if order.id == 13:
        raise ValueError("unlucky")
    return Order(order.id, order.amount * RATE)

@pipeline.stream(inputs=doubled, outputs=large)
def only_large(doubled):
    doubled.createOrReplaceTempView("doubled")
    return doubled.sparkSession.sql("SELECT id, amount FROM doubled WHERE amount >= 20")

@pipeline.sink(inputs=large)
def archive(batch, step):
    with open("hashes", "a") as file:
        file.write(f"{RATE} {step.hash}\\n")
    totals(batch, step)
"""


def command(python: str, place: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """`pillarbox pipeline ...` in a directory, as somebody types it there."""
    return subprocess.run(
        [python, "-m", "pillarbox.cli", "pipeline", *arguments],
        cwd=place,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )


@pytest.mark.timeout(600)
def test_R81_a_pipeline_runs_through_spark_connect(
    connect: str, python: str, tmp_path: Path, spark: Any
) -> None:
    (tmp_path / "own_shop.py").write_text(SHOP)
    (tmp_path / "own_prices.py").write_text("RATE = 2")
    done = command(python, tmp_path, "run", "own_shop:pipeline", "--master", connect, "--now")
    assert done.returncode == 0, done.stderr
    assert "arrive: done, 40 steps, 40 rows" in done.stdout
    assert ": done, 1 step, 40 rows" in done.stdout.split("double")[1]
    doubled = {n: 2 * n for n in range(40) if n != 13}
    found = read_json(tmp_path / "shop" / "logs" / "doubled")
    assert {each["id"]: each["amount"] for each in found} == doubled
    assert len(found) == len(doubled)
    archived = spark.read.parquet(f"file:{tmp_path}/archive").collect()
    assert sorted(row.id for row in archived) == [n for n, m in doubled.items() if m >= 20]
    # Each step was handed to the sink once, on the server, with what its modules know.
    handed_over = (tmp_path / "hashes").read_text().splitlines()
    assert sorted(handed_over) == sorted({f"2 {row.hash}" for row in archived})
    failed = command(python, tmp_path, "errors", "own_shop:pipeline", "double", "--json")
    assert [json.loads(line)["cause"] for line in failed.stdout.splitlines()] == [
        "ValueError: unlucky"
    ]
    shown = command(python, tmp_path, "inspect", "own_shop:pipeline", "--json")
    restarts = {each["id"]: each["restart"]["action"] for each in json.loads(shown.stdout)}
    assert restarts == {
        "arrive": "begin",
        "double": "go on",
        "only_large": "go on",
        "archive": "go on",
    }
    status = json.loads(command(python, tmp_path, "status", "own_shop:pipeline", "--json").stdout)
    assert (status["master"], status["running"]) == ("sc://127.0.0.1", False)
    assert status["lag"]["archive"] == {"large": 0}


def test_R82_the_inputs_of_a_plan_are_known_by_its_text(tmp_path: Path, spark: Any) -> None:
    """As they are known where the plan itself can be asked."""

    def read_log(name: str) -> Any:
        write(tmp_path / name, [])
        rows = spark.readStream.format("pillarbox").schema("index BIGINT, body BINARY")
        return rows.options(input=name, path=f"file:{tmp_path}/{name}", kinds="sent").load()

    one, two = read_log("one"), read_log("two-of_them")
    other = spark.readStream.format("rate").load().selectExpr("value AS index", "NULL AS body")
    one.createOrReplaceTempView("seen")
    plans = [
        one,
        two.join(one.select("index"), "index"),
        spark.sql("SELECT * FROM seen").union(two).union(other).union(one),
        spark.sql("SELECT {a}.index FROM {b} JOIN {a} USING (index)", a=one, b=two),
    ]
    explain = spark._jvm.PythonSQLUtils.explainString
    for rows in plans:
        text = explain(rows._jdf.queryExecution(), "extended")
        assert inputs_in_text(text) == inputs_in_plan(rows)
    assert inputs_in_text(text) == ["two-of_them", "one"]


WITHOUT = """
import sys
sys.modules["grpc"] = None  # as where it is not installed
from pillarbox.cli import run
sys.exit(run(["pipeline", "run", "own_shop:pipeline", "--master", "sc://127.0.0.1:1"]))
"""


def test_R81_without_what_spark_connect_needs_the_error_says_what_to_install(
    tmp_path: Path,
) -> None:
    (tmp_path / "own_shop.py").write_text(SHOP)
    (tmp_path / "own_prices.py").write_text("RATE = 2")
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "pip install 'pyspark[connect]'" in done.stderr
    assert "Traceback" not in done.stderr
    assert not is_running(Paths(str(tmp_path / "shop")))


class Client:
    """A process that runs a topology through Spark Connect, ten records a step."""

    def __init__(self, python: str, topology: str, place: Path, *, now: bool, master: str) -> None:
        code = (
            "import signal;"
            "from tests.spark.pipeline.driver import TOPOLOGIES, ROWS_PER_STEP;"
            f"run = TOPOLOGIES[{topology!r}]({str(place / 'p')!r}).run("
            f"master={master!r}, available_now={now}, max_rows=ROWS_PER_STEP);"
            "signal.signal(signal.SIGTERM, lambda *_: run.stop());"
            "run.wait()"
        )
        self.process = subprocess.Popen(
            [python, "-c", code], cwd=ROOT, env=environment(), start_new_session=True
        )

    def until(self, counted: Callable[[], int], records: int) -> None:
        """Wait until there are so many."""
        while counted() < records:
            assert self.process.poll() is None, "the client has ended"
            time.sleep(0.05)

    def end(self, how: signal.Signals | None = None) -> int:
        if how is not None:
            self.process.send_signal(how)
        return self.process.wait(300)


def count(path: Path) -> int:
    """How many records a log has, typed or not; none before it is there."""
    if (table := table_at(str(path))) is not None:
        return table.end_index
    try:
        with Log.open(path, readonly=True) as log:
            return log.end_index
    except LogError:
        return 0


def check(topology: str, place: Path, rows: int) -> None:
    """Every output is what its inputs make of it, and no step was ever another."""
    pipeline = TOPOLOGIES[topology](f"{place}/p")
    found = [each["number"] for each in read_json(pipeline.directory("out"))]
    assert Counter(found) == Counter(range(rows))
    if topology == "fan_out":
        archived = dataset(place / "archive", format="parquet").to_table()["number"].to_pylist()
        assert Counter(archived) == Counter(range(0, rows, 2))
    known = maps(pipeline)
    assert all(len(each) == 1 for each in hashes(known).values())
    ends = {name: end for each in known for name, (_, end) in each.get("inputs", {}).items()}
    wanted = {name: count(Path(pipeline.directory(name))) for name in ends}
    assert ends == wanted, "an input was taken for another"


def prepared(place: Path, rows: int) -> Path:
    write(place / "words", words(rows))
    write(place / "others", words(rows + 7))
    return place


@pytest.mark.soak
@pytest.mark.timeout(1500)
def test_R81_a_pipeline_that_is_stopped_ends_its_steps(
    connect: str, python: str, tmp_path: Path
) -> None:
    """And one whose client is killed begins no more: nobody would know of it."""
    place = prepared(tmp_path, 600)
    middle = place / "p" / "logs" / "middle"
    for how, code in ((signal.SIGTERM, 0), (signal.SIGKILL, -signal.SIGKILL)):
        client = Client(python, "chain", place, now=False, master=connect)
        client.until(functools.partial(count, middle), count(middle) + 50)
        assert is_running(Paths(str(place / "p")))
        assert client.end(how) == code
        assert not is_running(Paths(str(place / "p")))
        if how == signal.SIGTERM:
            actions = {each.restart.action for each in inspect(TOPOLOGIES["chain"](f"{place}/p"))}
            assert actions <= {"begin", "go on"}, "a step was left half done"
        settled = idle(middle)
        assert settled < 600, "it went on without a client"
    assert Client(python, "chain", place, now=True, master=connect).end() == 0
    check("chain", place, 600)


def idle(path: Path) -> int:
    """The length of a log that has not grown for a while."""
    last, since = -1, time.monotonic()
    while time.monotonic() - since < 5:
        if (now := count(path)) != last:
            last, since = now, time.monotonic()
        time.sleep(0.1)
    return last


@pytest.mark.soak
@pytest.mark.parametrize("topology", TOPOLOGIES)
def test_R83_servers_and_clients_of_spark_connect_are_killed(
    topology: str, python: str, tmp_path: Path
) -> None:
    seed = random.randrange(1 << 32)
    print("seed", seed)
    chance = random.Random(seed)
    place = prepared(tmp_path, 300)

    def total() -> int:
        logs = Path(TOPOLOGIES[topology](f"{place}/p").paths.path, "logs").glob("*")
        return sum(map(count, logs))

    for victim in ["server", "client"] * 4:
        with connect_server(tmp_path / "server", python) as address:
            client = Client(python, topology, place, now=False, master=address)
            client.until(total, total() + chance.randrange(1, 35))
            time.sleep(chance.uniform(0, 1))
            if victim == "client":
                client.end(signal.SIGKILL)
                time.sleep(chance.uniform(0, 2))
        # The server is killed here, in either case. A client would wait for it for minutes.
        client.end(signal.SIGKILL)
        print(victim, total())
    with connect_server(tmp_path / "server", python) as address:
        assert Client(python, topology, place, now=True, master=address).end() == 0
    check(topology, place, 300)


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
def test_R86_a_stream_through_spark_connect(connect: str, python: str, tmp_path: Path) -> None:
    write(tmp_path / "words", WORDS)
    subprocess.run([python, "-c", CLIENT, connect, str(tmp_path)], check=True, timeout=600)
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
def test_R86_a_declarative_pipeline_of_sparks_own_reads_and_writes_logs(
    python: str, tmp_path: Path
) -> None:
    write(tmp_path / "words", WORDS)
    (tmp_path / "transformations").mkdir()
    (tmp_path / "transformations" / "words.py").write_text(TRANSFORMATION.format(place=tmp_path))
    (tmp_path / "pipeline.yml").write_text(SPEC.format(place=tmp_path))
    chosen = {"PYSPARK_PYTHON": python, "PYSPARK_DRIVER_PYTHON": python}
    for _ in range(2):  # the second time there is nothing to do
        subprocess.run(
            [SPARK_HOME / "bin" / "spark-pipelines", "run", "--spec", "pipeline.yml"],
            cwd=tmp_path,
            env=environment() | chosen,
            check=True,
            timeout=600,
        )
        assert sorted(read(tmp_path / "out")) == sorted(WORDS)
