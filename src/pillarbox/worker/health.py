"""Health checks of a worker over HTTP: `/livez`, `/readyz` and `/metrics`.

Live: no process keeps crashing. Ready: every process has reached its mailboxes, and the workers
are not draining. The response is 200 or 503, with the status as JSON.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import accumulate

import msgspec

from pillarbox.worker.stats import DURATION_SECONDS, WorkerStats
from pillarbox.worker.supervisor import Status

DEATHS_MAX = 5  # consecutive
_JSON = "application/json"
_COUNTERS = {
    "succeeded": "Messages whose handler returned",
    "failed": "Handlers and replies that raised",
    "retried": "Messages returned for another delivery",
    "dead": "Messages dead-lettered by the worker",
    "released": "Messages returned without counting a delivery",
}


def metrics(now: Status) -> str:
    """Return metrics in the Prometheus format; `pillarbox.telemetry` has more."""
    lines: list[str] = []

    def family(name: str, kind: str, help_text: str, values: Iterable[tuple[str, float]]) -> None:
        full = f"pillarbox_worker_{name}"
        lines.extend((f"# HELP {full} {help_text}", f"# TYPE {full} {kind}"))
        lines.extend(f"{full}{suffix} {value}" for suffix, value in values)

    def each(name: str) -> list[tuple[str, float]]:
        return [(_labels(*item), getattr(item[1], name)) for item in now.workers.items()]

    for name, help_text in _COUNTERS.items():
        family(f"{name}_total", "counter", help_text, each(name))
    family("in_progress", "gauge", "Handlers running now", each("in_progress"))
    durations = [sample for item in now.workers.items() for sample in _histogram(*item)]
    family("duration_seconds", "histogram", "Duration of handlers", durations)
    family("ready", "gauge", "Processes that have reached their mailboxes", [("", now.ready)])
    family("processes", "gauge", "Processes configured", [("", now.processes)])
    return "\n".join(lines)


def _labels(handler: str, stats: WorkerStats, more: str = "") -> str:
    return f'{{handler="{handler}",queue="{stats.queue}"{more}}}'


def _histogram(handler: str, stats: WorkerStats) -> Iterator[tuple[str, float]]:
    counts = accumulate(stats.buckets)
    for bound, count in zip((*DURATION_SECONDS, "+Inf"), counts, strict=True):
        yield "_bucket" + _labels(handler, stats, f',le="{bound}"'), count
    yield "_sum" + _labels(handler, stats), stats.seconds
    yield "_count" + _labels(handler, stats), sum(stats.buckets)


_CHECKS: dict[str, Callable[[Status], bool]] = {
    "/livez": lambda now: now.deaths < DEATHS_MAX * now.processes,
    "/readyz": lambda now: now.state == "ready",
}


class _RequestHandler(BaseHTTPRequestHandler):
    """Responds to one request."""

    server: _Server

    def do_GET(self) -> None:
        path, now = self.path.partition("?")[0], self.server.status()
        if path == "/metrics":
            self._respond(200, "text/plain; version=0.0.4", metrics(now))
        elif path in _CHECKS:
            self._respond(
                200 if _CHECKS[path](now) else 503, _JSON, msgspec.json.encode(now).decode()
            )
        else:
            paths = ", ".join([*_CHECKS, "/metrics"])
            self._respond(404, _JSON, json.dumps({"error": f"no such path; try {paths}"}))

    do_HEAD = do_GET

    def _respond(self, code: int, kind: str, text: str) -> None:
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
        super().__init__(address, _RequestHandler)


@contextmanager
def serve_health(port: int, status: Callable[[], Status], host: str = "") -> Iterator[int]:
    """Serve on this port (0: any free port) inside the `with` block; yield the port."""
    with _Server((host, port), status) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join()
