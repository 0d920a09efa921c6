"""A proxy before an S3 server that loses answers: the server did it, the client never hears.

It is a process of its own, since clients in Rust hold Python's lock while they wait.
`python -m tests.spark.stores.s3_lossy TARGET PART COUNT`: of the first PUTs with PART in their
path.
"""

from __future__ import annotations

import contextlib
import http.client
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

_LOST = "/lost-so-far"


@contextlib.contextmanager
def lossy(endpoint: str, part: str, count: int) -> Iterator[str]:
    """The URL of a proxy; at the end it must have lost so many answers."""
    command = [sys.executable, "-m", "tests.spark.stores.s3_lossy", endpoint, part, str(count)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert process.stdout is not None
    try:
        url = process.stdout.readline().decode().strip()
        yield url
        with urllib.request.urlopen(f"{url}{_LOST}", timeout=30) as answer:
            assert int(answer.read()) == count
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    target, part, left, lost = "", "", 0, 0

    def handle_any(self) -> None:
        if self.path == _LOST:
            self._answer(200, [], str(Handler.lost).encode())
            return
        length = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(length) if length else None
        connection = http.client.HTTPConnection(self.target, timeout=60)
        connection.request(self.command, self.path, body, dict(self.headers))
        answer = connection.getresponse()
        data = answer.read()
        connection.close()
        if self.command == "PUT" and self.part in self.path and Handler.lost < self.left:
            Handler.lost += 1
            self.close_connection = True
            return
        self._answer(answer.status, answer.getheaders(), data)

    def _answer(self, status: int, headers: list[tuple[str, str]], data: bytes) -> None:
        self.send_response(status)
        for name, value in headers:
            if name.lower() not in ("transfer-encoding", "connection", "date", "server"):
                self.send_header(name, value)
        if not any(name.lower() == "content-length" for name, _ in headers):
            self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    do_GET = do_PUT = do_HEAD = do_POST = do_DELETE = handle_any

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


if __name__ == "__main__":
    Handler.target, Handler.part = sys.argv[1].removeprefix("http://"), sys.argv[2]
    Handler.left = int(sys.argv[3])
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    print(f"http://127.0.0.1:{server.server_port}", flush=True)
    server.serve_forever()
