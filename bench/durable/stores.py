"""Stores that other processes fill, open and measure: `python -m bench.durable.stores verb ...`.

A child answers with one line of JSON. One that is to be killed, or asked again, stays until then.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from resource import RUSAGE_SELF, getpagesize, getrusage
from time import perf_counter, sleep
from typing import Any

import google_crc32c

from pillarbox import DurableMailbox

BODY_BYTES = 1_000
CHUNK_BYTES = 1 << 20
BATCH = 10

Answer = dict[str, float]


def child(*arguments: object) -> Answer:
    """What a child answers that then ends by itself."""
    done = subprocess.run(_command(arguments), stdout=subprocess.PIPE, check=True)
    answer: Answer = json.loads(done.stdout)
    return answer


def killed_child(*arguments: object) -> Answer:
    """What a child answers that is then killed at once."""
    with subprocess.Popen(_command(arguments), stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        process.send_signal(signal.SIGKILL)
    answer: Answer = json.loads(line)
    return answer


def _command(arguments: tuple[object, ...]) -> list[str]:
    return [sys.executable, "-m", "bench.durable.stores", *map(str, arguments)]


def opened(path: str | Path) -> DurableMailbox[bytes]:
    return DurableMailbox("bench", bytes, path=path, durability="os")


def filled(box: DurableMailbox[bytes], count: int, body_bytes: int = BODY_BYTES) -> None:
    """Messages with bodies of their own, some at a time."""
    send_many = box.send_many
    for start in range(0, count, BATCH):
        numbers = range(start, min(start + BATCH, count))
        send_many([b"%020d" % number * (body_bytes // 20) for number in numbers])


def at_rest(box: DurableMailbox[Any]) -> None:
    """Wait until the housekeeping that the work has set off is over."""
    while box._store.compactor._thread is not None:
        sleep(0.01)


def resident_bytes() -> int:
    statm = Path("/proc/self/statm")
    if statm.exists():
        return int(statm.read_text(encoding="ascii").split()[1]) * getpagesize()
    return getrusage(RUSAGE_SELF).ru_maxrss  # the peak, in bytes on macOS


def _fill_and_stay(path: str, count: str) -> Answer:
    """Fill a store and leave it open."""
    box = opened(path)
    filled(box, int(count))
    print(json.dumps({"count": box.approximate_count()}), flush=True)
    signal.pause()
    raise AssertionError("nothing but a kill ends this")


def _open(path: str) -> Answer:
    """Open a store, and leave it as it was found."""
    start = perf_counter()
    box = opened(path)
    seconds = perf_counter() - start
    print(json.dumps({"seconds": seconds, "count": box.approximate_count()}), flush=True)
    os._exit(0)


def _checksum(path: str) -> Answer:
    """Read and checksum the log's files: the least that a look at all of it costs."""
    start = perf_counter()
    total = 0
    for file in sorted(Path(path, "log").glob("*.seg")):
        handle = os.open(file, os.O_RDONLY)
        crc = 0
        while data := os.read(handle, CHUNK_BYTES):
            crc = google_crc32c.extend(crc, data)
            total += len(data)
        os.close(handle)
    return {"seconds": perf_counter() - start, "bytes": total}


def _resident(path: str, warm: str) -> Answer:
    """How much a process grows by opening a store; another one pays for what is paid once."""
    with opened(warm) as other:
        filled(other, BATCH)
    before = resident_bytes()
    box = opened(path)
    growth = resident_bytes() - before
    print(json.dumps({"growth": growth, "count": box.approximate_count()}), flush=True)
    os._exit(0)


def _resident_sender(path: str, warm: str, count: str) -> Answer:
    """How much a process grows by sending; what it keeps at hand of new bodies counts."""
    with opened(warm) as other:
        filled(other, BATCH)
    before = resident_bytes()
    box = opened(path)
    filled(box, int(count))
    at_rest(box)
    growth = resident_bytes() - before
    box.close()
    return {"growth": growth}


VERBS: dict[str, Callable[..., Answer]] = {
    "fill-and-stay": _fill_and_stay,
    "open": _open,
    "checksum": _checksum,
    "resident": _resident,
    "resident-sender": _resident_sender,
}


def main() -> None:
    verb, *arguments = sys.argv[1:]
    print(json.dumps(VERBS[verb](*arguments)))


if __name__ == "__main__":
    main()
