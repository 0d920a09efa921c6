"""What SQS clients do, over 32 keep-alive connections: the broker beside ElasticMQ, moto and Redis.

Each request is signed as an SDK signs it. The broker checks that only where it has keys;
ElasticMQ and moto never do.
"""

from __future__ import annotations

import subprocess
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial

from bench.broker.load import BODY, LIFE, QUEUE, load
from bench.broker.sdk import Requests
from bench.broker.servers import broker, elasticmq, moto, redis
from bench.durable.place import work_directory
from bench.harness import Contender, Race, Run, Sized, Versus

CONNECTIONS = 32
BATCH = 10
OWN = "Pillarbox"
CHECKED = "Pillarbox, signatures checked"
SYNCED = "Pillarbox, confirmed on disk"
ELASTICMQ = "ElasticMQ"
LPUSH = "redis-benchmark LPUSH"
ALWAYS = "redis-benchmark LPUSH, AOF always"


@contextmanager
def _broker(what: str, *, synced: bool = False, checked: bool = False) -> Iterator[Run]:
    with (
        work_directory() as path,
        broker(path if synced else None, checked=checked) as (url, _),
        load(url, QUEUE, CONNECTIONS, what) as run,
    ):
        yield run


@contextmanager
def _elasticmq(what: str) -> Iterator[Run]:
    with elasticmq() as (url, _), load(url, QUEUE, CONNECTIONS, what) as run:
        yield run


@contextmanager
def _redis(*, synced: bool) -> Iterator[Run]:
    with work_directory() as path, redis(path, synced=synced) as (port, _):
        yield partial(push, port, CONNECTIONS)


def push(port: int, connections: int, operations: int) -> None:
    """LPUSH so many times, without pipelining."""
    command = ["redis-benchmark", "-q", "-p", str(port), "-c", str(connections)]
    command += ["-n", str(operations), "lpush", "line", BODY]
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)


@contextmanager
def _moto() -> Iterator[Run]:
    """Its server ends the connection after each answer, so each request makes a new one."""
    with moto() as url, ThreadPoolExecutor(CONNECTIONS) as pool:
        headers = {"X-Amz-Target": "AmazonSQS.SendMessage"}
        headers["Content-Type"] = "application/x-amz-json-1.0"
        request = Requests(url.removeprefix("http://"), QUEUE).send(BODY)
        body = request.partition(b"\r\n\r\n")[2]

        def send(_: int) -> None:
            ask = urllib.request.Request(f"{url}/", body, headers)
            with urllib.request.urlopen(ask, timeout=60) as answer:
                answer.read()

        yield lambda operations: list(pool.map(send, range(operations)))


def _own(what: str, operations: int, *versus: Versus) -> tuple[Contender, ...]:
    """The broker in memory, with signatures checked, and on disk."""
    return (
        Contender(OWN, partial(_broker, what), operations, versus),
        Contender(
            CHECKED,
            partial(_broker, what, checked=True),
            operations,
            (Versus(OWN, speed_at_least=0.75),),
        ),
        Contender(
            SYNCED,
            partial(_broker, what, synced=True),
            operations,
            (Versus(OWN, speed_at_least=0.9),),
        ),
    )


def sends(sized: Sized) -> Race:
    count = sized(50_000)
    return Race(
        f"SendMessage, {CONNECTIONS} connections",
        (
            *_own(
                "1",
                count,
                Versus(ELASTICMQ, speed_at_least=3),
                Versus("moto", speed_at_least=100),
                Versus(LPUSH),
            ),
            Contender(ELASTICMQ, partial(_elasticmq, "1"), count),
            Contender(LPUSH, partial(_redis, synced=False), count, note="no messages, no leases"),
            Contender(ALWAYS, partial(_redis, synced=True), count, note="the same"),
            Contender("moto", _moto, sized(1_000), note="everything but the protocol"),
        ),
    )


def batches(sized: Sized) -> Race:
    count = sized(100_000)
    return Race(
        f"SendMessageBatch of {BATCH}, each message, {CONNECTIONS} connections",
        (
            *_own(str(BATCH), count, Versus(ELASTICMQ, speed_at_least=2.5)),
            Contender(ELASTICMQ, partial(_elasticmq, str(BATCH)), count),
        ),
    )


def lives(sized: Sized) -> Race:
    count = sized(20_000)
    return Race(
        f"Send, receive and delete, {CONNECTIONS} connections",
        (
            *_own(LIFE, count, Versus(ELASTICMQ, speed_at_least=2.5)),
            Contender(ELASTICMQ, partial(_elasticmq, LIFE), count),
        ),
    )
