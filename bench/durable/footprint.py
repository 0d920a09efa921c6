"""The disk that a store takes after compaction. This module as a program measures it."""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path

from bench.durable.place import disk_bytes, work_directory
from bench.durable.stores import BODY_BYTES, filled, opened
from bench.harness import Figure, Probe, Sized
from pillarbox.log.log import SEGMENT_BYTES

CHURN = 300_000
KEPT_PART = 0.1
BATCH = 1_000
SLACK = 1.3
SEED = 7
_MEGABYTE = 1e6


def disk(sized: Sized) -> Probe:
    count = sized(CHURN)
    return Probe(
        f"disk after {count:,} messages of 1 kB, 90% acknowledged at random, and a compaction",
        "bench.durable.footprint",
        (str(count),),
        (
            Figure("before", "all files before", "MB"),
            Figure("after", "all files after", "MB"),
            Figure("closed", "all files after the store was closed", "MB"),
            Figure("live", "bodies of live messages", "MB"),
            Figure("ratio", "after, to 1.3 x live and one segment", "x", at_most=1),
            Figure("closed_ratio", "closed, to 1.3 x live and one segment", "x", at_most=1),
        ),
    )


def measure_disk(count: int, path: Path) -> dict[str, float]:
    chance = random.Random(SEED)
    with opened(path / "store") as box:
        filled(box, count)
        while messages := box.receive(max_messages=BATCH, visibility_timeout=3600):
            box.acknowledge_many([m for m in messages if chance.random() > KEPT_PART])
        before = disk_bytes(path)
        box._store.compactor.compact()
        after = disk_bytes(path)
        live = box.approximate_count() * BODY_BYTES
    closed = disk_bytes(path)
    allowed = SLACK * live + SEGMENT_BYTES
    return {
        "before": before / _MEGABYTE,
        "after": after / _MEGABYTE,
        "closed": closed / _MEGABYTE,
        "live": live / _MEGABYTE,
        "ratio": after / allowed,
        "closed_ratio": closed / allowed,
    }


def main() -> None:
    with work_directory() as path:
        print(json.dumps(measure_disk(int(sys.argv[1]), path)))


if __name__ == "__main__":
    main()
