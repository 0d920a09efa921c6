"""Ten thousand queues: what is asked of one queue, and of all of them, beside a broker with ten.

This module as a program makes the queues in a broker of its own and measures from outside.
"""

from __future__ import annotations

import http.client
import json
import sys
import time
from collections.abc import Callable
from urllib.parse import urlsplit

from bench.broker.effort import cpu_seconds
from bench.broker.servers import broker
from bench.harness import Figure, Probe, Sized

QUEUES = 10_000
FEW = 10
ROUNDS = 5
IDLE_SECONDS = 10
_TARGET = "AmazonSQS."


def queues(sized: Sized) -> Probe:
    count = max(100, sized(QUEUES))
    return Probe(
        f"{count:,} queues",
        "bench.broker.queues",
        (str(count), str(IDLE_SECONDS if count == QUEUES else 2)),
        (
            Figure("send_times", "a send, beside a broker with ten queues", "x", at_most=1.25),
            Figure("create_times", "creating a queue, likewise", "x", at_most=1.25),
            Figure("idle_percent", "CPU while nothing happens", "%", at_most=1),
            Figure("metrics_ms", "/metrics", "ms", at_most=250),
            Figure("list_ms", "ListQueues, a thousand of them", "ms", at_most=25),
            Figure("dashboard_ms", "the dashboard's first page", "ms", at_most=100),
        ),
    )


class Caller:
    """One connection."""

    def __init__(self, url: str) -> None:
        where = urlsplit(url)
        assert where.hostname
        self._connection = http.client.HTTPConnection(where.hostname, where.port, timeout=60)

    def ask(self, action: str, **parameters: object) -> None:
        body = json.dumps(parameters).encode()
        headers = {"X-Amz-Target": _TARGET + action, "Content-Type": "application/x-amz-json-1.0"}
        self._request("POST", "/", body, headers)

    def get(self, path: str) -> None:
        self._request("GET", path, b"", {})

    def _request(self, method: str, path: str, body: bytes, headers: dict[str, str]) -> None:
        self._connection.request(method, path, body, headers)
        answer = self._connection.getresponse()
        answer.read()
        assert answer.status == 200, answer.status


def _best_ms(what: Callable[[], object], operations: int = 1) -> float:
    times = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        for _ in range(operations):
            what()
        times.append((time.perf_counter() - began) / operations)
    return min(times) * 1e3


def _send_ms(caller: Caller) -> float:
    return _best_ms(
        lambda: caller.ask("SendMessage", QueueUrl="queue-5", MessageBody="a letter"), 1_000
    )


def _measure(count: int, idle_seconds: int) -> dict[str, float]:
    with broker(None) as (url, pid):
        caller = Caller(url)
        names = iter(range(count + ROUNDS * 1_000))

        def create() -> None:
            caller.ask("CreateQueue", QueueName=f"queue-{next(names)}")

        for _ in range(FEW):
            create()
        send_few, create_few = _send_ms(caller), _best_ms(create, min(1_000, count // 20))
        for number in names:
            if number >= count:
                break
            caller.ask("CreateQueue", QueueName=f"queue-{number}")
        names = iter(range(count, count + ROUNDS * 1_000))
        found = {
            "send_times": _send_ms(caller) / send_few,
            "create_times": _best_ms(create, min(1_000, count // 20)) / create_few,
        }
        before = cpu_seconds(pid)
        time.sleep(idle_seconds)
        found["idle_percent"] = (cpu_seconds(pid) - before) / idle_seconds * 100
        found["metrics_ms"] = _best_ms(lambda: caller.get("/metrics"))
        found["list_ms"] = _best_ms(lambda: caller.ask("ListQueues", MaxResults=1_000))
        found["dashboard_ms"] = _best_ms(lambda: caller.get("/dashboard"))
        return found


def main() -> None:
    count, idle_seconds = map(int, sys.argv[1:])
    print(json.dumps(_measure(count, idle_seconds)))


if __name__ == "__main__":
    main()
