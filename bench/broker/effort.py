"""What a request costs in CPU time: the server's and its client's, for the broker and Redis.

Two cores that do nothing else are a fair machine for a race only while no client is the
bottleneck. These figures say so: the slower side of each pair is what the race measures.
"""

from __future__ import annotations

import json
import resource
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from bench.broker.crowd import Load
from bench.broker.send import FEW, MANY, push
from bench.broker.servers import QUEUE, broker, redis
from bench.durable.place import work_directory
from bench.harness import Figure, Probe, Sized

ROUNDS = 3
_PAIRS = (("in memory", "memory"), ("confirmed on disk", "disk"))


def effort(sized: Sized) -> Probe:
    figures = [
        Figure(f"{level}_{who}_{side}_us", f"{text}: the {side} of {who}", "us")
        for text, level in _PAIRS
        for who in ("broker", "redis")
        for side in ("server", "client")
    ]
    return Probe(
        "CPU time of one send", "bench.broker.effort", (str(sized(50_000)),), tuple(figures)
    )


def cpu_seconds(pid: int) -> float:
    """What a process has used so far, all its threads together."""
    threads = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(each.read_text().split()[0]) for each in threads) / 1e9


def _children_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _least(pid: int, client: Callable[[], float], requests: int) -> tuple[float, float]:
    """Microseconds a request, of the server and the client: the best of a few rounds."""
    rounds = []
    for _ in range(ROUNDS):
        before = cpu_seconds(pid)
        used = client()
        server = cpu_seconds(pid) - before
        rounds.append((server / requests * 1e6, used / requests * 1e6))
    return min(server for server, _ in rounds), min(used for _, used in rounds)


def _measure(requests: int, synced: bool) -> dict[str, tuple[float, float]]:
    connections = MANY if synced else FEW
    with ExitStack() as stack:
        path = stack.enter_context(work_directory())
        url, broker_pid = stack.enter_context(broker(path if synced else None))
        port, redis_pid = stack.enter_context(redis(path, synced=synced))
        load = Load(url, QUEUE, connections)
        stack.callback(load.close)

        def of_broker() -> float:
            load.run(requests)
            return load.cpu_seconds

        def of_redis() -> float:
            before = _children_seconds()
            push(port, connections, requests)
            return _children_seconds() - before

        return {
            "broker": _least(broker_pid, of_broker, requests),
            "redis": _least(redis_pid, of_redis, requests),
        }


def main() -> None:
    requests = int(sys.argv[1])
    found = {}
    for _, level in _PAIRS:
        for who, (server, client) in _measure(requests, synced=level == "disk").items():
            found[f"{level}_{who}_server_us"] = server
            found[f"{level}_{who}_client_us"] = client
    print(json.dumps(found))


if __name__ == "__main__":
    main()
