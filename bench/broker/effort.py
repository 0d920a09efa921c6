"""What one operation costs a server in CPU time, all its threads together.

Rates depend on what else the machine does, and on the client; CPU time hardly does.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from bench.broker.load import LIFE, QUEUE, Load
from bench.broker.servers import broker, elasticmq
from bench.broker.sqs import BATCH, CONNECTIONS
from bench.durable.place import work_directory
from bench.harness import Figure, Probe, Sized, UnavailableError

ROUNDS = 3
_WHAT = {"send": "1", "batch": str(BATCH), "life": LIFE}
_TEXTS = {
    "send": "SendMessage",
    "batch": f"SendMessageBatch of {BATCH}, each message",
    "life": "send, receive and delete",
}
_SERVERS = {
    "memory": "Pillarbox",
    "checked": "Pillarbox, signatures checked",
    "disk": "Pillarbox, confirmed on disk",
    "elasticmq": "ElasticMQ",
}
_AT_MOST = {"memory_life": 100.0}


def effort(sized: Sized) -> Probe:
    figures = [
        Figure(
            f"{server}_{what}_us", f"{text}: {name}", "us", at_most=_AT_MOST.get(f"{server}_{what}")
        )
        for what, text in _TEXTS.items()
        for server, name in _SERVERS.items()
    ]
    return Probe(
        "CPU time of a server", "bench.broker.effort", (str(sized(20_000)),), tuple(figures)
    )


def cpu_seconds(pid: int) -> float:
    """What a process has used so far, all its threads together."""
    threads = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(each.read_text().split()[0]) for each in threads) / 1e9


@contextmanager
def _server(kind: str) -> Iterator[tuple[str, int]]:
    with ExitStack() as stack:
        if kind == "elasticmq":
            yield stack.enter_context(elasticmq())
            return
        path = stack.enter_context(work_directory()) if kind == "disk" else None
        yield stack.enter_context(broker(path, checked=kind == "checked"))


def _least(kind: str, what: str, operations: int) -> float:
    """Microseconds an operation: the best of a few rounds."""
    with _server(kind) as (url, pid):
        load = Load(url, QUEUE, CONNECTIONS, what)
        load.run(operations)  # a virtual machine has to get warm
        rounds = []
        for _ in range(ROUNDS):
            before = cpu_seconds(pid)
            load.run(operations)
            rounds.append((cpu_seconds(pid) - before) / operations * 1e6)
        load.close()
    return min(rounds)


def main() -> None:
    operations = int(sys.argv[1])
    found: dict[str, float] = {}
    for server in _SERVERS:
        for name, what in _WHAT.items():
            try:
                found[f"{server}_{name}_us"] = _least(server, what, operations)
            except UnavailableError:
                found[f"{server}_{name}_us"] = float("nan")
    print(json.dumps(found))


if __name__ == "__main__":
    main()
