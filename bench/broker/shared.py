"""What an operation costs brokers that share a store, and what it costs the store, in CPU time.

A store that one broker can't use up serves several: their costs say how many.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Thread

from bench.broker.effort import cpu_seconds
from bench.broker.load import LIFE, QUEUE, Load
from bench.broker.servers import broker, redis
from bench.durable.place import work_directory
from bench.harness import Figure, Probe, Sized

CONNECTIONS = 32
_WHAT = {"send": "1", "life": LIFE}
_TEXTS = {"send": "SendMessage", "life": "send, receive and delete"}
_STORES = {"redis": "Redis, AOF always", "postgres": "PostgreSQL"}
_TICK = os.sysconf("SC_CLK_TCK")

Store = tuple[str, Callable[[], float]]  # its URL, and the CPU seconds it has used so far


def shared(sized: Sized) -> Probe:
    figures = []
    for what, text in _TEXTS.items():
        for store, name in _STORES.items():
            key = f"{store}_{what}"
            figures += [
                Figure(f"{key}_broker_us", f"{text} on {name}: broker", "us"),
                Figure(f"{key}_store_us", f"{text} on {name}: store", "us"),
                Figure(f"{key}_two_us", f"{text} on {name}: each of two brokers", "us"),
            ]
    return Probe(
        "CPU time on a store that brokers share",
        "bench.broker.shared",
        (str(sized(6_000)),),
        tuple(figures),
    )


@contextmanager
def _redis() -> Iterator[Store]:
    with work_directory() as path, redis(path, synced=True) as (port, pid):
        yield f"redis://127.0.0.1:{port}", lambda: cpu_seconds(pid)


@contextmanager
def _postgres() -> Iterator[Store]:
    from pillarbox.testing.postgres import PostgresServer  # noqa: PLC0415 - behind an extra

    with work_directory() as path:
        os.chmod(path, 0o755)  # it does not run as root
        server = PostgresServer(str(path))
        server.create()
        server.start()
        try:
            yield server.url, lambda: _family_seconds(server.pid)
        finally:
            server.stop()


def _family_seconds(pid: int) -> float:
    """What a process and its children have used so far, those that have ended too."""
    ticks = 0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except FileNotFoundError:
            continue
        if int(stat.parent.name) == pid:
            ticks += sum(map(int, fields[11:15]))
        elif int(fields[1]) == pid:
            ticks += sum(map(int, fields[11:13]))
    return ticks / _TICK


def _cost(store: Store, what: str, operations: int, brokers: int) -> tuple[float, float]:
    """Microseconds of CPU for an operation: those of the brokers, and those of the store."""
    url, used = store
    with ExitStack() as stack:
        running = [stack.enter_context(broker(None, shared=url)) for _ in range(brokers)]
        loads = [Load(each, QUEUE, CONNECTIONS // brokers, what) for each, _ in running]
        for each in loads:
            stack.callback(each.close)
        _run(loads, operations // 2)  # statements are planned, and pages cached
        before, before_store = sum(cpu_seconds(pid) for _, pid in running), used()
        _run(loads, operations)
        spent = sum(cpu_seconds(pid) for _, pid in running) - before
        return spent / operations * 1e6, (used() - before_store) / operations * 1e6


def _run(loads: list[Load], operations: int) -> None:
    """Split the operations evenly, at the same time."""
    threads = [Thread(target=each.run, args=[operations // len(loads)]) for each in loads]
    for each in threads:
        each.start()
    for each in threads:
        each.join()


def main() -> None:
    operations = int(sys.argv[1])
    found: dict[str, float] = {}
    for name, open_store in (("redis", _redis), ("postgres", _postgres)):
        with open_store() as store:
            for key, what in _WHAT.items():
                alone = _cost(store, what, operations, 1)
                found[f"{name}_{key}_broker_us"], found[f"{name}_{key}_store_us"] = alone
                found[f"{name}_{key}_two_us"] = _cost(store, what, operations, 2)[0]
    print(json.dumps(found))


if __name__ == "__main__":
    main()
