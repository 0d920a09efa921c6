"""R103: `pillarbox worker` in real processes, under real signals."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from pillarbox import DeadLetterPolicy, open_mailbox
from pillarbox.cli.worker import ProgressLine
from pillarbox.worker.stats import WorkerStats
from pillarbox.worker.supervisor import Status
from tests.cli.support import on_a_terminal, pillarbox
from tests.worker.command import ROOT, Command, command, told_in
from tests.worker.conftest import eventually

SHOP = "tests.worker.shop"


class Store:
    """A mailbox on disk, open while no worker runs."""

    def __init__(self, path: Path) -> None:
        self.url = f"file:{path}/store/orders"
        self.told = path / "told"

    def send(self, *bodies: str, **options: Any) -> None:
        with open_mailbox(self.url, str, **options) as box:
            box.send_many(bodies)

    def left(self) -> list[tuple[str, int]]:
        """What can be received once every lease is over: bodies, with their delivery counts."""
        found: list[tuple[str, int]] = []
        with open_mailbox(self.url, str) as box:
            until = time.monotonic() + 20
            while box.approximate_count() > len(found) and time.monotonic() < until:
                for message in box.receive(max_messages=99, wait_time_seconds=1):
                    found.append((message.body, message.delivery_count))
        return sorted(found)

    def run(self, *words: str, handler: str = f"{SHOP}:pack") -> Any:
        return command(self.told, handler, "--mailbox", self.url, *words)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path)


@pytest.mark.parametrize("handler", ["pack", "pack_async"])
def test_R103_sigterm_drains(store: Store, handler: str) -> None:
    store.send(*(f"n{number} 0.5" for number in range(6)))
    with store.run("--concurrency", "2", handler=f"{SHOP}:{handler}") as running:
        running.started(2)
        assert running.stop() == 0
        started = running.told("S")
        assert len(started) < 6
        assert sorted(line.body for line in running.told("E")) == sorted(
            line.body for line in started
        )
    bodies = {f"n{number} 0.5" for number in range(6)} - {line.body for line in started}
    assert store.left() == sorted((body, 1) for body in bodies)


def test_R103_a_second_signal_gives_back_what_runs_and_exits(store: Store) -> None:
    store.send("long 600")
    with store.run() as running:
        running.started(1)
        running.process.send_signal(signal.SIGTERM)
        began = time.monotonic()
        running.stop(signal.SIGINT)  # two of the same kind may arrive as one
        assert time.monotonic() - began < 20
        assert running.told("E") == []
    assert store.left() == [("long 600", 1)]


def test_R103_when_the_grace_is_over_what_runs_is_given_back(store: Store) -> None:
    store.send("long 600")
    with store.run("--grace", "0.3") as running:
        running.started(1)
        running.stop(signal.SIGINT)
    assert store.left() == [("long 600", 1)]


def test_R103_a_long_handler_may_end_early_when_asked(store: Store) -> None:
    store.send("polite 600")
    with store.run() as running:
        running.started(1)
        assert running.stop() == 0
        assert len(running.told("E")) == 1


def test_R100_a_message_that_kills_its_process_dies_and_the_rest_is_done(store: Store) -> None:
    store.send("poison", "a", "b", dead_letters=DeadLetterPolicy(3))
    words = ("--retries", "2", "--visibility-timeout", "0.3")
    with store.run(*words) as running:
        eventually(lambda: {line.body for line in running.told("E")} == {"a", "b"})
        eventually(lambda: len([x for x in running.told("S") if x.body == "poison"]) == 3)
        with_poison = [line for line in running.told("S") if line.body == "poison"]
        assert [line.delivery_count for line in with_poison] == [1, 2, 3]
        assert len({line.pid for line in with_poison}) == 3, "it was not started again"
        assert running.stop() == 0
    assert store.left() == []
    with open_mailbox(store.url, str, dead_letters=DeadLetterPolicy(3)) as box:
        assert box.dead_letters is not None
        assert [letter.body for letter in box.dead_letters.peek()] == ["poison"]


def test_R12_a_worker_killed_in_a_batch_loses_nothing_and_counts_only_what_started(
    store: Store,
) -> None:
    store.send(*(f"n{number} 600" for number in range(20)))
    words = ("--concurrency", "8", "--visibility-timeout", "1")
    with store.run(*words) as running:
        started = running.started(8)
        running.process.kill()  # first, so that it starts no other
        os.kill(started[0].pid, signal.SIGKILL)
        running.process.wait(20)
        eventually(lambda: not alive(started[0].pid))
        begun = {line.body for line in running.told("S")}
    assert len(begun) == 8
    left = dict(store.left())
    assert len(left) == 20
    assert {body for body, count in left.items() if count == 2} <= begun
    assert {body: left[body] for body in left.keys() - begun} == dict.fromkeys(
        left.keys() - begun, 1
    )


def test_R103_a_worker_whose_supervisor_is_killed_drains(store: Store) -> None:
    store.send("a 0.5", "b 0.5")
    with store.run() as running:
        (started,) = running.started(1)
        running.process.kill()
        running.process.wait(20)
        eventually(lambda: not alive(started.pid))
        assert len(running.told("E")) == 1
    assert store.left() == [("b 0.5", 1)]


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"


def ask(port: str, path: str) -> tuple[int, dict[str, Any]]:
    try:
        with urllib.request.urlopen(f"http://localhost:{port}{path}", timeout=10) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


def metrics(port: str) -> str:
    with urllib.request.urlopen(f"http://localhost:{port}/metrics", timeout=10) as answer:
        text: str = answer.read().decode()
        return text


def health_port(running: Command) -> str:
    assert running.process.stderr is not None
    for line in running.process.stderr:
        if found := re.search(r"localhost:(\d+)/readyz", line):
            return found[1]
    raise AssertionError("it named no port")


def test_R103_health_tells_ready_and_draining(store: Store) -> None:
    store.send("long 1.5")
    with store.run("--health-port", "0") as running:
        port = health_port(running)
        running.started(1)
        eventually(lambda: ask(port, "/readyz")[0] == 200)
        _, figures = ask(port, "/readyz")
        assert (figures["processes"], figures["state"]) == (1, "ready")
        assert figures["workers"][f"{SHOP}:pack"]["queue"] == "orders"
        assert ask(port, "/nonsense")[0] == 404
        labels = f'{{handler="{SHOP}:pack",queue="orders"}}'
        eventually(lambda: f"pillarbox_worker_in_progress{labels} 1" in metrics(port))
        running.process.send_signal(signal.SIGTERM)
        eventually(lambda: ask(port, "/readyz")[0] == 503)
        assert ask(port, "/livez")[0] == 200
        assert running.process.wait(20) == 0


def test_R103_a_module_is_one_command_for_all_its_workers(store: Store, tmp_path: Path) -> None:
    root = f"file:{tmp_path}/store"
    with open_mailbox(f"{root}/parcels", str, dead_letters=DeadLetterPolicy(2)) as parcels:
        parcels.send_many(["good", "later", "bad", "refused"])
    tasks = "tests.worker.tasks"
    environment = {"SHOP_STORE": f"{tmp_path}/store"}
    with command(store.told, tasks, "--health-port", "0", **environment) as running:
        port = health_port(running)

        def figures(name: str) -> dict[str, int]:
            found: dict[str, int] = ask(port, "/readyz")[1]["workers"].get(f"{tasks}:{name}", {})
            return {key: value for key, value in found.items() if type(value) is int}

        done = {"succeeded": 2, "failed": 2, "retried": 2, "dead": 2, "released": 0}
        eventually(lambda: figures("pack") == done | {"in_progress": 0})
        # A handler that sends to another sends to where that one receives.
        eventually(lambda: figures("post").get("succeeded") == 2)
        text = metrics(port)
        labels = f'handler="{tasks}:pack",queue="parcels"'
        for name, value in done.items():
            assert f"pillarbox_worker_{name}_total{{{labels}}} {value}" in text
        assert f'pillarbox_worker_duration_seconds_bucket{{{labels},le="+Inf"}} 6' in text
        assert f"pillarbox_worker_duration_seconds_count{{{labels}}} 6" in text
        families = {family.name for family in text_string_to_metric_families(text)}
        assert "pillarbox_worker_duration_seconds" in families
        running.process.send_signal(signal.SIGTERM)
        assert running.process.stderr is not None
        said = running.process.stderr.read()
        assert running.process.wait(20) == 0
    assert re.search(rf"stopped: .*{tasks}:pack on parcels: .* 2 succeeded, 2 failed, 2 ret", said)
    assert re.search(rf"stopped: .*{tasks}:post on letters: .* 2 succeeded, 0 failed", said)


DECLARED = """
from pillarbox.worker import worker
from tests.worker.shop import tell

@worker("memory:nowhere", retries=3)
def pack(parcel: str, job) -> None:
    tell("E", job)

if __name__ == "__main__":
    pack.send("tea")
"""


def test_R103_send_and_the_command_mean_the_same_mailbox(store: Store, tmp_path: Path) -> None:
    (tmp_path / "declared.py").write_text(DECLARED)
    environment = {"PILLARBOX_MAILBOX": store.url}
    subprocess.run(
        [sys.executable, "declared.py"],
        cwd=tmp_path,
        env=os.environ | environment | {"PYTHONPATH": str(ROOT)},
        check=True,
    )
    with command(store.told, "declared", cwd=tmp_path, **environment) as running:
        eventually(lambda: [line.body for line in running.told("E")] == ["tea"])
        assert running.stop() == 0
    with command(store.told, "declared", cwd=tmp_path) as running:
        assert running.process.wait(60) == 2
        assert running.process.stderr is not None
        assert "memory: is private to each process" in running.process.stderr.read()


BEFORE = """
from pillarbox.worker import Retry
from tests.worker.shop import tell

def handle(order: str, job) -> None:
    tell("S", job)
    raise Retry(0.1)
"""
BROKEN = "import no_such_module"
AFTER = """
from tests.worker.shop import tell

def handle(order: str, job) -> None:
    tell("E", job)
"""


def test_R103_watch_starts_again_with_the_new_code_and_waits_for_code_that_works(
    store: Store, tmp_path: Path
) -> None:
    module = tmp_path / "watched.py"
    module.write_text(BEFORE)
    store.send("a")
    words = ("--mailbox", store.url, "--watch")
    with command(store.told, "watched:handle", *words, cwd=tmp_path) as running:
        running.started(1)
        module.write_text(BROKEN)
        assert running.process.stderr is not None
        assert any("no_such_module" in line for line in running.process.stderr)
        assert running.told("E") == []
        module.write_text(AFTER)
        eventually(lambda: running.told("E"))
        assert running.stop() == 0
    assert store.left() == []


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ([f"{SHOP}:pack"], "--mailbox URL"),
        ([], "package.module"),
        ([f"{SHOP}:nobody", "--mailbox", "file:./x/y"], "has no 'nobody'"),
        (["no_such_module:x", "--mailbox", "file:./x/y"], "No module named 'no_such_module'"),
        ([SHOP, "--mailbox", "file:./x/y"], f"write {SHOP}:function"),
        (["tests.worker.tasks", "--mailbox", "file:./x/y"], "given for one handler"),
        (["tests.worker.unworkable"], "a second parameter without a default is a Job"),
        ([f"{SHOP}:pack", "--mailbox", "memory:x"], "memory: is private to each process"),
        ([f"{SHOP}:pack", "--mailbox", "file:./x/y", "--processes", "2"], r"Redis \(redis:"),
        ([f"{SHOP}:pack", "--mailbox", "file:./x/y", "--processes", "0"], "from 1 to 1,000"),
        ([f"{SHOP}:pack", "--mailbox", "nonsense"], "--mailbox must be .* memory:name"),
        ([f"{SHOP}:pack", "--mailbox", "file:./x/y", "--concurrency", "0"], "--concurrency must"),
        ([f"{SHOP}:pack", "--mailbox", "file:./x/y", "--time-limit", "0"], "--time-limit must be"),
    ],
)
def test_R103_what_cannot_work_is_told_in_one_line(words: list[str], problem: str) -> None:
    done = pillarbox("worker", *words)
    assert done.returncode == 2, done.stderr
    (line,) = done.stderr.splitlines()
    assert line.startswith("pillarbox: ")
    assert re.search(problem, line)


def test_R103_a_terminal_shows_a_live_line(store: Store) -> None:
    store.send("a", "b", "c")
    shown: list[str] = []

    def run() -> None:
        words = (f"{SHOP}:pack", "--mailbox", store.url)
        environment = {"SHOP_TOLD": str(store.told), "PYTHONPATH": str(ROOT)}
        shown.append(on_a_terminal("worker", *words, **environment))

    thread = threading.Thread(target=run)
    thread.start()
    eventually(lambda: len(told_in(store.told, "E")) == 3)
    (pid,) = {line.pid for line in told_in(store.told)}
    os.kill(parent_of(pid), signal.SIGTERM)
    thread.join(30)
    assert re.search(rf"stopped: .*{SHOP}:pack.* 3 succeeded, 0 failed", " ".join(shown[0].split()))


def test_R103_long_durations_are_plain_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    stats = WorkerStats("parcels", succeeded=2, seconds=40)
    ProgressLine().show(
        Status(state="ready", processes=1, ready=1, deaths=0, error="", workers={"a:b": stats})
    )
    assert " 20,000 ms on average" in capsys.readouterr().err


def parent_of(pid: int) -> int:
    found = re.search(r"PPid:\t(\d+)", Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    return int(found[1])
