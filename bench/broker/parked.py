"""Parked long polls: what they cost while nothing happens, and how soon one is woken.

This module as a program parks them in a broker of its own and measures that from outside.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import sys
import time
from pathlib import Path

import uvloop

from bench.broker.effort import cpu_seconds
from bench.broker.load import QUEUE
from bench.broker.servers import broker
from bench.harness import Figure, Probe, Sized

POLLS = 5_000
IDLE_SECONDS = 10
_HEAD = (
    "POST / HTTP/1.1\r\nHost: localhost\r\nX-Amz-Target: AmazonSQS.{}\r\nContent-Length: {}\r\n\r\n"
)


def parked(sized: Sized) -> Probe:
    count = max(100, sized(POLLS))
    seconds = IDLE_SECONDS if count == POLLS else 2
    return Probe(
        f"{count:,} parked long polls",
        "bench.broker.parked",
        (str(count), str(seconds), str(max(20, sized(1_000)))),
        (
            Figure("idle_percent", "CPU while nothing happens", "%", at_most=1),
            Figure("wake_p99_ms", "one send wakes one, 99th percentile", "ms", at_most=10),
            Figure("resident_mb", "resident memory of the broker", "MB", at_most=150),
        ),
    )


class _Poll(asyncio.Protocol):
    """Asks again as soon as it is answered, and tells when that was."""

    def __init__(self, ask: bytes, woken: asyncio.Queue[float]) -> None:
        self._ask = ask
        self._woken = woken

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._transport.write(self._ask)  # type: ignore[attr-defined]

    def data_received(self, data: bytes) -> None:
        if b'"Messages"' in data:
            self._woken.put_nowait(time.perf_counter())
        self._transport.write(self._ask)  # type: ignore[attr-defined]


def _request(action: str, **parameters: object) -> bytes:
    body = json.dumps({"QueueUrl": QUEUE, **parameters}).encode()
    return _HEAD.format(action, len(body)).encode() + body


async def _measure(url: str, pid: int, count: int, seconds: int, sends: int) -> dict[str, float]:
    host, _, port = url.removeprefix("http://").partition(":")
    loop = asyncio.get_running_loop()
    woken: asyncio.Queue[float] = asyncio.Queue()
    ask = _request("ReceiveMessage", WaitTimeSeconds=20)
    for _ in range(count):
        await loop.create_connection(lambda: _Poll(ask, woken), host, int(port))
    await asyncio.sleep(1)
    before = cpu_seconds(pid)
    await asyncio.sleep(seconds)
    idle = (cpu_seconds(pid) - before) / seconds
    memory = _resident_bytes(pid)
    reader, writer = await asyncio.open_connection(host, int(port))
    times = []
    for _ in range(sends):
        began = time.perf_counter()
        writer.write(_request("SendMessage", MessageBody="wake"))
        times.append(await woken.get() - began)
        await reader.readuntil(b"}")
    writer.close()
    times.sort()
    worst = times[min(len(times) - 1, int(len(times) * 0.99))]
    return {
        "idle_percent": idle * 100,
        "wake_p99_ms": worst * 1e3,
        "resident_mb": memory / 1e6,
    }


def _resident_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def main() -> None:
    count, seconds, sends = map(int, sys.argv[1:])
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with broker(None) as (url, pid):
        print(json.dumps(uvloop.run(_measure(url, pid, count, seconds, sends))))


if __name__ == "__main__":
    main()
