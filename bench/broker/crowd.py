"""Many keep-alive connections that each send the same request again and again.

As a program it is the load: a process of its own, that does so many requests for each number
it reads, and says when they are answered. Nothing is parsed but where an answer ends.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import uvloop

from bench.harness import Run

BODY = "an order for two pillar boxes, red. ".ljust(100, ".")
_END = b"\r\n\r\n"


def request(url: str, queue: str, batch: int) -> bytes:
    """One SendMessage, or one SendMessageBatch."""
    known: dict[str, object] = {"QueueUrl": f"{url}/000000000000/{queue}"}
    if batch > 1:
        known["Entries"] = [{"Id": str(i), "MessageBody": BODY} for i in range(batch)]
    else:
        known["MessageBody"] = BODY
    body = json.dumps(known).encode()
    action = "SendMessageBatch" if batch > 1 else "SendMessage"
    head = (
        f"POST / HTTP/1.1\r\nHost: bench\r\nX-Amz-Target: AmazonSQS.{action}\r\n"
        f"Content-Type: application/x-amz-json-1.0\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


class _Sender(asyncio.Protocol):
    def __init__(self, crowd: Crowd) -> None:
        self._crowd = crowd
        self._rest = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self._rest += data
        head, end, body = self._rest.partition(_END)
        if not end:
            return
        length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0])
        if len(body) < length:
            return
        self._rest = body[length:]
        if not head.startswith(b"HTTP/1.1 200"):
            raise SystemExit(f"refused: {body!r}")
        self._crowd.answered(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._crowd.broken()


class Crowd:
    """Connections that share a number of requests."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._left = 0
        self._open = 0
        self._senders: list[_Sender] = []

    async def connect(self, host: str, port: int, count: int) -> None:
        loop = asyncio.get_running_loop()
        for _ in range(count):
            _, sender = await loop.create_connection(lambda: _Sender(self), host, port)
            self._senders.append(sender)

    async def run(self, requests: int) -> None:
        self._done = asyncio.get_running_loop().create_future()
        self._left, self._open = requests, 0
        for sender in self._senders[:requests]:
            self._next(sender)
        await self._done

    def _next(self, sender: _Sender) -> None:
        self._left -= 1
        self._open += 1
        sender.transport.write(self._data)  # type: ignore[attr-defined]

    def answered(self, sender: _Sender) -> None:
        self._open -= 1
        if self._left > 0:
            self._next(sender)
        elif self._open == 0 and not self._done.done():
            self._done.set_result(None)

    def broken(self) -> None:
        raise SystemExit("the server hung up")


@contextmanager
def load(url: str, queue: str, connections: int, batch: int = 1) -> Iterator[Run]:
    """Does so many messages; the program is started and connected before it is timed."""
    arguments = [url, queue, str(connections), str(batch)]
    command = [sys.executable, "-m", "bench.broker.crowd", *arguments]
    program = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert program.stdin is not None
    assert program.stdout is not None
    assert program.stdout.readline() == "ready\n"

    def run(messages: int) -> None:
        print(max(1, messages // batch), file=program.stdin, flush=True)
        assert program.stdout is not None
        assert program.stdout.readline() == "done\n"

    try:
        yield run
    finally:
        program.stdin.close()
        program.stdout.close()
        program.terminate()
        program.wait()


async def _main(url: str, queue: str, connections: int, batch: int) -> None:
    host, _, port = url.removeprefix("http://").partition(":")
    crowd = Crowd(request(url, queue, batch))
    await crowd.connect(host, int(port), connections)
    print("ready", flush=True)
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        await crowd.run(int(line))
        print("done", flush=True)


if __name__ == "__main__":
    uvloop.run(_main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))
