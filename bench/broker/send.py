"""SendMessage over raw connections, beside LPUSH of redis-benchmark and moto's server."""

from __future__ import annotations

import subprocess
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial

from bench.broker.crowd import BODY, load, request
from bench.broker.servers import QUEUE, broker, moto, redis
from bench.durable.place import work_directory
from bench.harness import Contender, Race, Run, Sized, Versus

FEW = 32
MANY = 100
BATCH = 10
LPUSH = "redis-benchmark LPUSH"
ALWAYS = "redis-benchmark LPUSH, AOF always"
SEND = "SendMessage"
SENDS = f"SendMessageBatch of {BATCH}, each message"


@contextmanager
def _broker(connections: int, batch: int, *, synced: bool) -> Iterator[Run]:
    with (
        work_directory() as path,
        broker(path if synced else None) as (url, _),
        load(url, QUEUE, connections, batch) as run,
    ):
        yield run


@contextmanager
def _redis(connections: int, *, synced: bool) -> Iterator[Run]:
    with work_directory() as path, redis(path, synced=synced) as (port, _):
        yield partial(push, port, connections)


def push(port: int, connections: int, operations: int) -> None:
    """LPUSH so many times, without pipelining."""
    command = ["redis-benchmark", "-q", "-p", str(port), "-c", str(connections)]
    command += ["-n", str(operations), "lpush", "line", BODY]
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)


@contextmanager
def _moto(connections: int) -> Iterator[Run]:
    """Its server ends the connection after each answer, so each request makes a new one."""
    with moto() as url, ThreadPoolExecutor(connections) as pool:
        headers = {"X-Amz-Target": "AmazonSQS.SendMessage"}
        headers["Content-Type"] = "application/x-amz-json-1.0"
        body = request(url, QUEUE, 1).partition(b"\r\n\r\n")[2]

        def send(_: int) -> None:
            ask = urllib.request.Request(f"{url}/", body, headers)
            with urllib.request.urlopen(ask, timeout=60) as answer:
                answer.read()

        yield lambda operations: list(pool.map(send, range(operations)))


def not_durable(sized: Sized) -> Race:
    return Race(
        f"SendMessage, {FEW} keep-alive connections, in memory",
        (
            Contender(
                SEND,
                partial(_broker, FEW, 1, synced=False),
                sized(100_000),
                (Versus(LPUSH, speed_at_least=0.8), Versus("moto", speed_at_least=100)),
            ),
            Contender(
                SENDS,
                partial(_broker, FEW, BATCH, synced=False),
                sized(200_000),
                (Versus(SEND, speed_at_least=3),),
            ),
            Contender(LPUSH, partial(_redis, FEW, synced=False), sized(200_000)),
            Contender(
                "moto", partial(_moto, FEW), sized(1_000), note="everything but the protocol"
            ),
        ),
    )


def durable(sized: Sized) -> Race:
    return Race(
        f"SendMessage, {MANY} keep-alive connections, confirmed on disk",
        (
            Contender(
                SEND,
                partial(_broker, MANY, 1, synced=True),
                sized(100_000),
                (Versus(ALWAYS, speed_at_least=1.0),),
            ),
            Contender(
                SENDS,
                partial(_broker, MANY, BATCH, synced=True),
                sized(200_000),
                (Versus(SEND, speed_at_least=3),),
            ),
            Contender(ALWAYS, partial(_redis, MANY, synced=True), sized(100_000)),
        ),
    )
