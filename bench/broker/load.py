"""Many keep-alive connections that each do one thing after another, as SDKs would ask for it.

As a program it is the load: a process of its own, that does so many operations for each number
it reads, and answers with the CPU time that it took. An operation is a send, a batch of sends,
or a whole life: a message is sent, one is received, and that one is deleted.
"""

from __future__ import annotations

import re
import select
import socket
import subprocess
import sys
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager

from bench.broker.sdk import Requests
from bench.harness import Run

BODY = "an order for two pillar boxes, red. ".ljust(100, ".")
QUEUE = "bench"
LIFE = "life"
_END = b"\r\n\r\n"
_LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)
_HANDLE = re.compile(rb'"ReceiptHandle": ?"([^"]+)"')
_OK = b"HTTP/1.1 200"
_READ_BYTES = 65_536


Operation = Generator[bytes, bytes, None]  # requests out, answers in


def operation(requests: Requests, what: str) -> Operation:
    """`life`, or a send of so many messages."""
    if what != LIFE:
        yield requests.send(BODY, int(what))
        return
    yield requests.send(BODY)
    answer = yield requests.receive()
    found = _HANDLE.search(answer)
    if found is None:
        raise SystemExit(f"nothing was received: {answer!r}")
    yield requests.delete(found[1].decode())


class Connections:
    """Connections that share a number of operations, and have one under way each."""

    def __init__(self, host: str, port: int, count: int, requests: Requests, what: str) -> None:
        self._requests = requests
        self._what = what
        self._sockets = [socket.create_connection((host, port)) for _ in range(count)]
        self._by_number = {each.fileno(): each for each in self._sockets}
        self._epoll = select.epoll()
        for each in self._sockets:
            each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._epoll.register(each.fileno(), select.EPOLLIN)

    def run(self, operations: int) -> None:
        under_way: dict[int, Operation] = {}
        left = operations
        for each in self._sockets[:operations]:
            left -= 1
            self._start(each, under_way)
        while under_way:
            for number, _ in self._epoll.poll():
                connection = self._by_number[number]
                answer = read_answer(connection)
                try:
                    connection.send(under_way[number].send(answer))
                except StopIteration:
                    del under_way[number]
                    if left:
                        left -= 1
                        self._start(connection, under_way)

    def _start(self, connection: socket.socket, under_way: dict[int, Operation]) -> None:
        started = under_way[connection.fileno()] = operation(self._requests, self._what)
        connection.send(next(started))


def read_answer(connection: socket.socket) -> bytes:
    """One whole answer, which must be a good one."""
    answer = b""
    while not _is_whole(answer):
        more = connection.recv(_READ_BYTES)
        if not more:
            raise SystemExit(f"the server hung up after {answer!r}")
        answer += more
    if not answer.startswith(_OK):
        raise SystemExit(f"refused: {answer!r}")
    return answer


def _is_whole(answer: bytes) -> bool:
    end = answer.find(_END)
    found = _LENGTH.search(answer, 0, end) if end >= 0 else None
    return found is not None and len(answer) >= end + len(_END) + int(found[1])


class Load:
    """The program, as whoever starts it sees it."""

    def __init__(self, url: str, queue: str, connections: int, what: str) -> None:
        arguments = [url, queue, str(connections), what]
        command = [sys.executable, "-m", "bench.broker.load", *arguments]
        pipe = subprocess.PIPE
        self._program = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)
        self._batch = int(what) if what != LIFE else 1
        self.cpu_seconds = 0.0  # that the last run took
        self._read()

    def _read(self) -> str:
        assert self._program.stdout is not None
        line = self._program.stdout.readline()
        if not line:
            raise RuntimeError("the load ended: its words are above")
        return line

    def run(self, messages: int) -> None:
        """Do this for so many messages, and return when all is answered."""
        assert self._program.stdin is not None
        print(max(1, messages // self._batch), file=self._program.stdin, flush=True)
        self.cpu_seconds = float(self._read())

    def close(self) -> None:
        self._program.communicate()


@contextmanager
def load(url: str, queue: str, connections: int, what: str = "1") -> Iterator[Run]:
    """Does so many messages; the program is started and connected before it is timed."""
    program = Load(url, queue, connections, what)
    try:
        yield program.run
    finally:
        program.close()


def main(url: str, queue: str, count: str, what: str) -> None:
    address = url.removeprefix("http://")
    host, _, port = address.partition(":")
    requests = Requests(address, queue)
    connections = Connections(host, int(port), int(count), requests, what)
    print("ready", flush=True)
    for line in sys.stdin:
        before = time.process_time()
        connections.run(int(line))
        print(time.process_time() - before, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
