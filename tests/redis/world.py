"""What the tests on Redis share: mailboxes on the shared servers, and a proxy that cuts lines."""

from __future__ import annotations

import secrets
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from typing import Any

from pillarbox.mailbox.redis import RedisMailbox
from pillarbox.testing.redis import RedisServer, shared_server

PATIENCE_SECONDS = 30


def new_name(word: str = "box") -> str:
    return f"{word}-{secrets.token_hex(4)}"


def open_box(body_type: Any = str, **options: Any) -> RedisMailbox[Any]:
    """A mailbox on the shared server, on a queue of its own."""
    options.setdefault("url", f"{shared_server().url}/-")
    return RedisMailbox(options.pop("name", new_name()), body_type, **options)


class InThread:
    """Let a thread do this; `result` waits for it."""

    def __init__(self, work: Callable[[], Any]) -> None:
        self._future: Future[Any] = Future()
        threading.Thread(target=self._run, args=(work,), daemon=True).start()

    def _run(self, work: Callable[[], Any]) -> None:
        try:
            self._future.set_result(work())
        except BaseException as error:  # noqa: BLE001 - the caller of `result` sees it
            self._future.set_exception(error)

    @property
    def done(self) -> bool:
        return self._future.done()

    def result(self) -> Any:
        return self._future.result(PATIENCE_SECONDS)


def scripts_run(server: RedisServer) -> int:
    """How many scripts the server has run so far."""
    stats = server.info("commandstats")
    found = (stats.get(f"cmdstat_{name}", "calls=0") for name in ("evalsha", "eval"))
    return sum(int(each.partition(",")[0].removeprefix("calls=")) for each in found)


class CuttingProxy:
    """Between a client and its server: passes everything on, until it is told to cut a line.

    After `cut_next_answer` the next request still reaches the server, which does it, and the
    line is cut instead of the answer.
    """

    def __init__(self, port: int) -> None:
        self._server_port = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._cuts = 0
        self.cut = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def cut_next_answer(self, times: int = 1) -> None:
        self._cuts = times

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(("127.0.0.1", self._server_port))
                for pipe in (self._forward, self._backward):
                    threading.Thread(target=pipe, args=(client, server), daemon=True).start()

    def _forward(self, client: socket.socket, server: socket.socket) -> None:
        with suppress(OSError):
            while data := client.recv(1 << 16):
                server.sendall(data)
        server.close()

    def _backward(self, client: socket.socket, server: socket.socket) -> None:
        with suppress(OSError):
            while data := server.recv(1 << 16):
                # A short answer to the handshake of a new connection is not what was meant.
                if self._cuts and not data.startswith((b"%", b"+OK")):
                    self._cuts -= 1
                    self.cut += 1
                    break
                client.sendall(data)
        with suppress(OSError):
            client.shutdown(socket.SHUT_RDWR)
        client.close()


@contextmanager
def proxied(port: int) -> Iterator[CuttingProxy]:
    proxy = CuttingProxy(port)
    try:
        yield proxy
    finally:
        proxy.close()
