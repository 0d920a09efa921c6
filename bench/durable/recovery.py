"""How long a store takes to open, beside reading and checksumming its log once.

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
        f"opening a store of {count:,} live messages of 1 kB",
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
        ),
    )


def measure(count: int, times: int, closed: Path, killed: Path) -> dict[str, float]:
    child("fill", closed, count)
    killed_child("fill-and-stay", killed, count)
    rounds: dict[str, list[float]] = {}
    for _ in range(times):
        for cold in ("", "_cold"):
            for name, path in (("closed", closed), ("killed", killed)):
                _forget(closed, cold)
                rounds.setdefault("read" + cold, []).append(child("checksum", closed)["seconds"])
                _forget(path, cold)
                rounds.setdefault(name + cold, []).append(_open(path, count))
    (killed / "snapshot").unlink(missing_ok=True)
    rounds["bare"] = [_open(killed, count) for _ in range(times)]
    found = {name: median(seconds) for name, seconds in rounds.items()}
    for name in ("closed", "killed", "closed_cold", "killed_cold", "bare"):
        found[f"{name}_ratio"] = found[name] / found["read_cold" if "cold" in name else "read"]
    return found | {"bytes": child("checksum", closed)["bytes"] / 1e6}


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
        print(json.dumps(measure(count, times, path / "closed", path / "killed")))


if __name__ == "__main__":
    main()
