"""Many keep-alive connections that each send the same request again and again.

As a program it is the load: a process of its own, that does so many requests for each number
it reads, and answers with the CPU time that it took. It is as lean as a client in Python can
be, so that it does not measure itself: no event loop, and nothing is parsed but where an
answer ends.
"""

from __future__ import annotations

import json
import select
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from bench.harness import Run

BODY = "an order for two pillar boxes, red. ".ljust(100, ".")
_END = b"\r\n\r\n"
_LENGTH = b"content-length:"
_OK = b"HTTP/1.1 200"
_READ_BYTES = 16_384


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


def whole(data: bytes) -> bool:
    """Whether an answer is all here."""
    head, end, body = data.partition(_END)
    length = head.lower().partition(_LENGTH)[2].partition(b"\r\n")[0]
    return bool(end) and len(body) >= int(length)


class Crowd:
    """Connections that share a number of requests, and have one under way each."""

    def __init__(self, host: str, port: int, count: int, data: bytes) -> None:
        self._data = data
        self._sockets = [socket.create_connection((host, port)) for _ in range(count)]
        self._by_number = {each.fileno(): (each.recv, each.send) for each in self._sockets}
        self._epoll = select.epoll()
        self._size = 0  # of an answer: all are alike
        for each in self._sockets:
            each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._epoll.register(each.fileno(), select.EPOLLIN)

    def run(self, requests: int) -> None:
        data, by_number, poll = self._data, self._by_number, self._epoll.poll
        started = self._sockets[:requests]
        for each in started:
            each.send(data)
        left, under_way = requests - len(started), len(started)
        while under_way:
            for number, _ in poll():
                receive, send = by_number[number]
                answer = receive(_READ_BYTES)
                if len(answer) != self._size or not answer.startswith(_OK):
                    self._look_closer(answer, number)
                if left:
                    left -= 1
                    send(data)
                else:
                    under_way -= 1

    def _look_closer(self, answer: bytes, number: int) -> None:
        """An answer of another size than the last: read the rest of it, if there is more."""
        receive, _ = self._by_number[number]
        while not whole(answer):
            more = receive(_READ_BYTES)
            if not more:
                raise SystemExit(f"the server hung up after {answer!r}")
            answer += more
        if not answer.startswith(_OK):
            raise SystemExit(f"refused: {answer!r}")
        self._size = len(answer)


class Load:
    """The program, as whoever starts it sees it."""

    def __init__(self, url: str, queue: str, connections: int, batch: int = 1) -> None:
        arguments = [url, queue, str(connections), str(batch)]
        command = [sys.executable, "-m", "bench.broker.crowd", *arguments]
        pipe = subprocess.PIPE
        self._program = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)
        self._batch = batch
        self.cpu_seconds = 0.0  # that the last run took
        self._read()

    def _read(self) -> str:
        assert self._program.stdout is not None
        line = self._program.stdout.readline()
        if not line:
            raise RuntimeError("the load ended: its words are above")
        return line

    def run(self, messages: int) -> None:
        """Send so many messages, and return when all are answered."""
        assert self._program.stdin is not None
        print(max(1, messages // self._batch), file=self._program.stdin, flush=True)
        self.cpu_seconds = float(self._read())

    def close(self) -> None:
        self._program.communicate()


@contextmanager
def load(url: str, queue: str, connections: int, batch: int = 1) -> Iterator[Run]:
    """Does so many messages; the program is started and connected before it is timed."""
    program = Load(url, queue, connections, batch)
    try:
        yield program.run
    finally:
        program.close()


def main(url: str, queue: str, connections: int, batch: int) -> None:
    host, _, port = url.removeprefix("http://").partition(":")
    crowd = Crowd(host, int(port), connections, request(url, queue, batch))
    print("ready", flush=True)
    for line in sys.stdin:
        before = time.process_time()
        crowd.run(int(line))
        print(time.process_time() - before, flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
