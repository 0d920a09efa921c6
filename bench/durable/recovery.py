"""How long a store takes to open, beside reading and checksumming its log once; its memory.

This module as a program measures it; stores are filled, killed and opened in processes of
their own, and each measurement is taken several times, in turns.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from statistics import median

from bench.durable.place import forget_pages, work_directory
from bench.durable.stores import child, killed_child
from bench.harness import Figure, Probe, Sized

COUNT = 1_000_000
TIMES = 3


def opening(sized: Sized) -> Probe:
    count = sized(COUNT)
    return Probe(
        f"opening a store of {count:,} live messages of 1 kB, and the memory that they take",
        "bench.durable.recovery",
        (str(count), str(sized(TIMES))),
        (
            Figure("bytes", "its log", "MB"),
            Figure("read", "read and checksum the log, from the page cache", "s"),
            Figure("read_cold", "read and checksum the log, from the disk", "s"),
            Figure("closed", "open after a close, from the page cache", "s"),
            Figure("closed_cold", "open after a close, from the disk", "s"),
            Figure("killed", "open after kill -9, from the page cache", "s"),
            Figure("killed_cold", "open after kill -9, from the disk", "s"),
            Figure("bare", "open with no snapshot at all, from the page cache", "s"),
            Figure("closed_ratio", "closed, to reading: page cache", "x", at_most=2),
            Figure("closed_cold_ratio", "closed, to reading: disk", "x", at_most=2),
            Figure("killed_ratio", "killed, to reading: page cache", "x", at_most=2),
            Figure("killed_cold_ratio", "killed, to reading: disk", "x", at_most=2),
            Figure("bare_ratio", "no snapshot, to reading: page cache", "x"),
            Figure("opened", "growth by opening the store, a message", "bytes", at_most=250),
            Figure(
                "sent",
                "growth by sending (4 MB of new bodies stay at hand), a message",
                "bytes",
                at_most=250 if count == COUNT else None,  # fewer are all at hand
            ),
        ),
    )


def measure(count: int, times: int, path: Path) -> dict[str, float]:
    closed, killed, warm = path / "closed", path / "killed", path / "warm"
    sent = child("resident-sender", closed, warm, count)["growth"] / count
    opened = child("resident", closed, warm)["growth"] / count
    killed_child("fill-and-stay", killed, count)
    rounds: dict[str, list[float]] = {}
    for _ in range(times):
        for cold in ("", "_cold"):
            for name, store in (("closed", closed), ("killed", killed)):
                _forget(closed, cold)
                rounds.setdefault("read" + cold, []).append(child("checksum", closed)["seconds"])
                _forget(store, cold)
                rounds.setdefault(name + cold, []).append(_open(store, count))
    (killed / "snapshot").unlink(missing_ok=True)
    rounds["bare"] = [_open(killed, count) for _ in range(times)]
    found = {name: median(seconds) for name, seconds in rounds.items()}
    for name in ("closed", "killed", "closed_cold", "killed_cold", "bare"):
        found[f"{name}_ratio"] = found[name] / found["read_cold" if "cold" in name else "read"]
    size = child("checksum", closed)["bytes"] / 1e6
    return found | {"bytes": size, "sent": sent, "opened": opened}


def _forget(path: Path, cold: str) -> None:
    if cold:
        forget_pages(path)


def _open(path: Path, count: int) -> float:
    answer = child("open", path)
    assert answer["count"] == count, f"{answer['count']:,} messages of {count:,} came back"
    return answer["seconds"]


def main() -> None:
    with work_directory() as path:
        count, times = map(int, sys.argv[1:])
        print(json.dumps(measure(count, times, path)))


if __name__ == "__main__":
    main()
