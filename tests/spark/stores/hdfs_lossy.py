"""A proxy before a namenode that loses answers: the namenode did it, the client never hears.

It is a process of its own, as that before S3.
`python -m tests.spark.stores.hdfs_lossy PORT METHOD`: of the first call of this method.
"""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator

_LOST = b"lost\n"


@contextlib.contextmanager
def lossy(port: int, method: str = "rename2") -> Iterator[str]:
    """The URL of a proxy; at the end it must have lost an answer."""
    command = [sys.executable, "-m", "tests.spark.stores.hdfs_lossy", str(port), method]
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    assert process.stdout is not None
    try:
        yield f"hdfs://127.0.0.1:{int(process.stdout.readline())}"
    finally:
        process.kill()
        process.wait()
        said = process.stdout.read()
        process.stdout.close()
    assert said == _LOST


class Proxy:
    def __init__(self, port: int, method: bytes) -> None:
        self._port, self._method, self._lost = port, method, False
        #: No answer comes between a call and the note that it is to be lost.
        self._lock = threading.Lock()

    def serve(self, client: socket.socket) -> None:
        server = socket.create_connection(("127.0.0.1", self._port))
        #: Set when the next answer on this connection is the one to lose.
        loses = threading.Event()
        threading.Thread(target=self._answers, args=[server, client, loses], daemon=True).start()
        while data := _received(client):
            with self._lock:
                server.sendall(data)
                if self._method in data and not self._lost:
                    self._lost = True
                    loses.set()
        _close(server, client)

    def _answers(
        self, server: socket.socket, client: socket.socket, loses: threading.Event
    ) -> None:
        while data := _received(server):
            with self._lock:
                lose = loses.is_set()
            if lose:
                sys.stdout.buffer.write(_LOST)
                sys.stdout.buffer.flush()
                break
            client.sendall(data)
        _close(server, client)


def _received(connection: socket.socket) -> bytes:
    try:
        return connection.recv(1 << 16)
    except OSError:
        return b""


def _close(*connections: socket.socket) -> None:
    for each in connections:
        with contextlib.suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)


if __name__ == "__main__":
    proxy = Proxy(int(sys.argv[1]), sys.argv[2].encode())
    with socket.create_server(("127.0.0.1", 0)) as listener:
        print(listener.getsockname()[1], flush=True)
        while True:
            connection, _ = listener.accept()
            threading.Thread(target=proxy.serve, args=[connection], daemon=True).start()
