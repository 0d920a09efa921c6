"""Each contender: how its workers are started, how it sends a task, when all tasks are done."""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import redis

from bench.harness import Run, UnavailableError
from pillarbox import open_mailbox
from pillarbox.testing.redis import RedisServer, directory, free_ports

CONCURRENCY = 8
START_SECONDS_MAX = 60
LOOK_SECONDS = 0.002

Send = Callable[[int], object]  # so many tasks
Done = Callable[[], bool]


@dataclass(frozen=True, slots=True)
class Peer:
    """`command` starts the workers; `bench.worker.apps.<module>` holds the task."""

    name: str
    module: str
    command: tuple[str, ...]
    face: Callable[[str], tuple[Send, Done]]  # of the URL
    copies: int = 1
    note: str = ""


def started(peer: Peer, url: str, stack: ExitStack) -> None:
    """The workers, in processes of their own."""
    environment = os.environ | {"BENCH_URL": url, "PYTHONPATH": os.getcwd()}
    for _ in range(peer.copies):
        process = subprocess.Popen(
            [sys.executable, *peer.command],
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        stack.callback(_end, process)


def _end(process: subprocess.Popen[bytes]) -> None:
    try:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(10)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    except ProcessLookupError:
        process.wait()


def until(done: Done, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while not done():
        if time.monotonic() > deadline:
            return False
        time.sleep(LOOK_SECONDS)
    return True


@contextmanager
def on_redis(peer: Peer) -> Iterator[Run]:
    """A Redis of its own, as Redis is by default but for the snapshots."""
    try:
        importlib.import_module(peer.module)
    except ImportError as error:
        raise UnavailableError(f"{error.name} is not installed; try: make bench") from None
    with ExitStack() as stack:
        server = RedisServer(stack.enter_context(directory()), free_ports(1)[0])
        stack.callback(server.kill)
        server.start()
        url = server.url + ("/tasks" if peer.module == "pillarbox" else "/0")
        yield _runner(peer, url, stack)


@contextmanager
def on_broker(peer: Peer) -> Iterator[Run]:
    """Our broker on disk, in a process of its own; every send and acknowledge is synced."""
    with ExitStack() as stack:
        data = stack.enter_context(directory())
        words = ("-m", "pillarbox.cli", "serve", "--port", "0", "--data", data, "--json")
        broker = subprocess.Popen(
            [sys.executable, *words], stdout=subprocess.PIPE, start_new_session=True
        )
        stack.callback(_end, broker)
        assert broker.stdout is not None
        url = json.loads(broker.stdout.readline())["url"]
        yield _runner(peer, f"{url}/tasks", stack)


def _runner(peer: Peer, url: str, stack: ExitStack) -> Run:
    started(peer, url, stack)
    send, done = peer.face(url)
    send(1)  # they are ready once one task is done
    if not until(done, START_SECONDS_MAX):
        raise UnavailableError("its workers do not answer")

    def run(operations: int) -> None:
        send(operations)
        if not until(done, 300):
            raise TimeoutError(f"{peer.name} did not finish {operations} tasks")

    return run


def _app(name: str, url: str) -> Any:
    """The module of the task, for this URL."""
    os.environ["BENCH_URL"] = url
    module = importlib.import_module(f"bench.worker.apps.{name}_app")
    return importlib.reload(module)


def _ours(url: str) -> tuple[Send, Done]:
    noop = _app("pillarbox", url).noop
    watch = open_mailbox(url, int)

    def send(count: int) -> None:
        for number in range(count):
            noop.send(number)

    return send, lambda: watch.approximate_count() == 0


def _ours_in_batches(url: str) -> tuple[Send, Done]:
    noop = _app("pillarbox", url).noop
    _, done = _ours(url)

    def send(count: int) -> None:
        for first in range(0, count, 100):
            noop.send_many(range(first, min(first + 100, count)))

    return send, done


def _celery(url: str) -> tuple[Send, Done]:
    noop, client = _app("celery", url).noop, redis.Redis.from_url(url)

    def send(count: int) -> None:
        for number in range(count):
            noop.delay(number)

    return send, lambda: client.llen("celery") == 0 and client.hlen("unacked") == 0


def _dramatiq(url: str) -> tuple[Send, Done]:
    noop, client = _app("dramatiq", url).noop, redis.Redis.from_url(url)

    def send(count: int) -> None:
        for number in range(count):
            noop.send(number)

    return send, lambda: client.hlen("dramatiq:default.msgs") == 0


def _rq(url: str) -> tuple[Send, Done]:
    app = _app("rq", url)

    def send(count: int) -> None:
        for number in range(count):
            app.queue.enqueue(app.noop, number, result_ttl=0)

    return (
        send,
        lambda: (
            app.queue.count == 0
            and app.queue.started_job_registry.get_job_count(cleanup=False) == 0
        ),
    )


def _huey(url: str) -> tuple[Send, Done]:
    app = _app("huey", url)

    def send(count: int) -> None:
        for number in range(count):
            app.noop(number)

    return send, lambda: app.huey.pending_count() == 0


def _taskiq(url: str) -> tuple[Send, Done]:
    app, client, loop = _app("taskiq", url), redis.Redis.from_url(url), asyncio.new_event_loop()
    loop.run_until_complete(app.broker.startup())

    async def send_all(count: int) -> None:
        for number in range(count):
            await app.noop.kiq(number)

    def done() -> bool:
        (group,) = client.xinfo_groups("taskiq")
        return group["pending"] == 0 and group["lag"] == 0

    return lambda count: loop.run_until_complete(send_all(count)), done


_SIZE = str(CONCURRENCY)
_APPS = "bench.worker.apps"
_OURS = ("-m", "pillarbox.cli", "worker", f"{_APPS}.pillarbox_app:noop", "--concurrency", _SIZE)
OURS = Peer("pillarbox", "pillarbox", _OURS, _ours)
OURS_IN_BATCHES = Peer("pillarbox, sent 100 at a time", "pillarbox", _OURS, _ours_in_batches)
PEERS = (
    Peer(
        "celery",
        "celery",
        (
            *("-m", "celery", "-A", f"{_APPS}.celery_app", "worker", "-P", "threads", "-c", _SIZE),
            *("--without-gossip", "--without-mingle", "--without-heartbeat", "-l", "ERROR"),
        ),
        _celery,
    ),
    Peer(
        "dramatiq",
        "dramatiq",
        ("-m", "dramatiq", f"{_APPS}.dramatiq_app", "--processes", "1", "--threads", _SIZE),
        _dramatiq,
    ),
    Peer(
        "rq",
        "rq",
        ("-m", f"{_APPS}.rq_app"),
        _rq,
        copies=CONCURRENCY,
        note="threads: one process for each task at a time",
    ),
    Peer(
        "huey",
        "huey",
        ("-m", "huey.bin.huey_consumer", f"{_APPS}.huey_app.huey", "-w", _SIZE, "-q", "-n"),
        _huey,
        note="acknowledgements: what was taken is gone",
    ),
    Peer(
        "taskiq",
        "taskiq",
        (
            *("-m", "taskiq", "worker", f"{_APPS}.taskiq_app:broker", "--workers", "1"),
            *("--max-async-tasks", _SIZE, "--log-level", "ERROR"),
        ),
        _taskiq,
    ),
)
