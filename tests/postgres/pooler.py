"""What a client sees of a transaction pooler: another process answers than the one it met."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

_KEY = b"K\x00\x00\x00\x0c"  # BackendKeyData: 4 bytes of process id and 4 of a secret follow
_PID = b"\x00\x00\x00\x07"


@contextmanager
def pooler(port: int) -> Iterator[int]:
    """The port of a proxy that gives every client a process id of its own making."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def accept() -> None:
            with suppress(OSError):
                while True:
                    client, _ = server.accept()
                    upstream = socket.create_connection(("127.0.0.1", port))
                    for source, target in ((client, upstream), (upstream, client)):
                        threading.Thread(target=_copy, args=(source, target), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        yield server.getsockname()[1]


def _copy(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65536):
            at = data.find(_KEY)
            if at >= 0:
                data = data[: at + 5] + _PID + data[at + 9 :]
            target.sendall(data)
        target.shutdown(socket.SHUT_RDWR)
    source.close()
