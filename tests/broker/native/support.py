"""What the tests of the private protocol share: a relay that breaks connections, a raw client."""

from __future__ import annotations

import http.client
import secrets
import socket
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Literal
from urllib.parse import urlsplit

from pillarbox.mailbox.broker import wire

PATIENCE_SECONDS = 60


class Relay:
    """Stands between a client and a broker; it can lose a request, or the answer to one.

    `break_next` is what to lose next: a request before the broker has it, or an answer after
    the broker gave it. `before_breaking` is called at that moment, with everything at rest.
    """

    def __init__(self, url: str) -> None:
        self.target = urlsplit(url)
        self.break_next: list[Literal["request", "answer"]] = []
        self.before_breaking: Callable[[], object] = lambda: None
        self.requests = 0
        self.connections = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._open: set[socket.socket] = set()
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def point_to(self, url: str) -> None:
        """From now on connections go to another broker, and those that are there end."""
        self.target = urlsplit(url)
        self.cut()

    def cut(self) -> None:
        """End every connection now."""
        for each in list(self._open):
            _close(each)

    def close(self) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # which ends the accept
        self._listener.close()
        self.cut()

    def __enter__(self) -> Relay:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                self.connections += 1
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        self._open.add(client)
        try:
            broker = socket.create_connection((self.target.hostname, self.target.port))
        except OSError:
            _close(client)
            return
        self._open.add(broker)
        threading.Thread(target=self._pump, args=(broker, client, "answer"), daemon=True).start()
        self._pump(client, broker, "request")

    def _pump(self, source: socket.socket, sink: socket.socket, what: Any) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 20):
                if what == "request":
                    self.requests += data.count(b"POST ")
                if self.break_next[:1] == [what]:
                    self.before_breaking()
                    del self.break_next[0]
                    break
                sink.sendall(data)
            else:
                sink.shutdown(socket.SHUT_WR)  # a farewell in one direction is passed on
                return
        _close(source)
        _close(sink)


def _close(link: socket.socket) -> None:
    with suppress(OSError):
        link.shutdown(socket.SHUT_RDWR)
    link.close()


class RawClient:
    """Speaks the protocol by hand."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._http = http.client.HTTPConnection(
            parts.hostname or "", parts.port, timeout=PATIENCE_SECONDS
        )
        self.channel = secrets.token_bytes(16)

    def post(self, path: str, body: bytes, **headers: str) -> tuple[int, bytes]:
        fields = {"Content-Type": "application/msgpack"}
        fields |= {name.replace("_", "-"): value for name, value in headers.items()}
        self._http.request("POST", path, body, fields)
        answer = self._http.getresponse()
        return answer.status, answer.read()

    def ask(
        self, queue: str, number: int, *commands: wire.Command, instance: str = ""
    ) -> Sequence[Any]:
        """The outcomes of these commands."""
        body = wire.encode(wire.Request(self.channel, number, instance, list(commands)))
        status, answer = self.post(f"{wire.PATH}/{queue}", body)
        assert status == 200, answer
        results: list[Any] = wire.decode_results(answer)
        return results

    def close(self) -> None:
        self._http.close()

    def __enter__(self) -> RawClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def until(condition: Callable[[], bool], what: str) -> None:
    """Wait until this holds; it is looked at often, and not for ever."""
    ticker = threading.Event()
    for _ in range(PATIENCE_SECONDS * 200):
        if condition():
            return
        ticker.wait(0.005)
    raise AssertionError(f"never came true: {what}")
