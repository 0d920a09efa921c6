"""Health checks of a worker over HTTP: `/livez`, `/readyz` and `/metrics`.

Live: no process keeps crashing. Ready: every process has reached its mailbox, and the worker is
not draining. The answer is 200 or 503, with the figures as JSON.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from pillarbox.worker.supervisor import Status

DEATHS_MAX = 5  # in succession
_JSON = "application/json"
_METRICS = {
    "done_total": ("counter", "Messages handled, whatever the outcome"),
    "failed_total": ("counter", "Handlers that failed"),
    "busy": ("gauge", "Handlers running now"),
    "ready": ("gauge", "Processes that have reached their mailbox"),
    "processes": ("gauge", "Processes configured"),
}


def metrics(now: Status) -> str:
    """The figures in the Prometheus format; `pillarbox.telemetry` has more."""
    lines = []
    for name, (kind, what) in _METRICS.items():
        full = f"pillarbox_worker_{name}"
        value = getattr(now, name.removesuffix("_total"))
        lines += [f"# HELP {full} {what}", f"# TYPE {full} {kind}"]
        lines.append(f'{full}{{queue="{now.queue}"}} {value}')
    return "\n".join(lines)


_CHECKS: dict[str, Callable[[Status], bool]] = {
    "/livez": lambda now: now.deaths < DEATHS_MAX * now.processes,
    "/readyz": lambda now: now.state == "ready",
}


class _Answer(BaseHTTPRequestHandler):
    """Answers one request."""

    server: _Server

    def do_GET(self) -> None:
        path, now = self.path.partition("?")[0], self.server.status()
        if path == "/metrics":
            self._answer(200, "text/plain; version=0.0.4", metrics(now))
        elif path in _CHECKS:
            self._answer(200 if _CHECKS[path](now) else 503, _JSON, json.dumps(asdict(now)))
        else:
            known = ", ".join([*_CHECKS, "/metrics"])
            self._answer(404, _JSON, json.dumps({"error": f"no such path; try {known}"}))

    do_HEAD = do_GET

    def _answer(self, code: int, kind: str, text: str) -> None:
        data = text.encode() + b"\n"
        self.send_response(code)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        """Log nothing for probes."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, address: tuple[str, int], status: Callable[[], Status]) -> None:
        self.status = status
        super().__init__(address, _Answer)


@contextmanager
def serve_health(port: int, status: Callable[[], Status], host: str = "") -> Iterator[int]:
    """Serve on this port (0: any free port) inside the `with` block; yields the port."""
    with _Server((host, port), status) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join()
