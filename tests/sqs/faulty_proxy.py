"""A server between a mailbox and the broker that fails when a test says so."""

from __future__ import annotations

import json
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

Answer = tuple[int, dict[str, Any]]
Forward = Callable[[dict[str, Any]], Answer]
Fault = Callable[[dict[str, Any], Forward], Answer | None]  # None: hang up without an answer


def refusal(status: int, code: str, message: str = "told to") -> Fault:
    """Answer with an error and don't ask the broker."""
    answer = {"__type": f"com.amazonaws.sqs#{code}", "message": message}
    return lambda ask, forward: (status, answer)


def lost_answer(ask: dict[str, Any], forward: Forward) -> None:
    """The broker does what was asked, and nobody hears of it."""
    forward(ask)


def lost_request(ask: dict[str, Any], forward: Forward) -> None:
    """The broker hears nothing of it."""


def failed_entries(*places: int, code: str = "InternalError", sender: bool = False) -> Fault:
    """The broker takes the batch but for these entries, which fail."""

    def fault(ask: dict[str, Any], forward: Forward) -> Answer:
        entries = ask["Entries"]
        lucky = [entry for place, entry in enumerate(entries) if place not in places]
        status, answer = forward({**ask, "Entries": lucky}) if lucky else (200, {})
        answer["Failed"] = [
            {"Id": entries[place]["Id"], "SenderFault": sender, "Code": code, "Message": "told to"}
            for place in places
        ]
        return status, answer

    return fault


class FaultyProxy:
    """Forwards to the broker; `faults[action]` are used up one by one, `calls` counts them all."""

    def __init__(self, target: str) -> None:
        self._target = urlsplit(target).netloc
        self.endpoint = ""
        self.faults: defaultdict[str, list[Fault]] = defaultdict(list)
        self.calls: Counter[str] = Counter()
        self._lock = threading.Lock()

    def answer(self, headers: Any, body: bytes) -> Answer | None:
        action = headers["X-Amz-Target"].rpartition(".")[2]
        ask = json.loads(body)
        with self._lock:
            self.calls[action] += 1
            fault = self.faults[action].pop(0) if self.faults[action] else None

        def forward(asked: dict[str, Any]) -> Answer:
            connection = HTTPConnection(self._target, timeout=60)
            kept = {name: headers[name] for name in ("X-Amz-Target", "Content-Type", "Host")}
            connection.request("POST", "/", json.dumps(asked), kept)
            response = connection.getresponse()
            answer = json.loads(response.read() or b"{}")
            connection.close()
            return response.status, answer

        return forward(ask) if fault is None else fault(ask, forward)


@contextmanager
def faulty_proxy(target: str) -> Iterator[FaultyProxy]:
    proxy = FaultyProxy(target)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            answer = proxy.answer(
                self.headers, self.rfile.read(int(self.headers["Content-Length"]))
            )
            if answer is None:
                self.close_connection = True
                return
            status, body = answer
            data = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/x-amz-json-1.0")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *arguments: Any) -> None:
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        block_on_close = False  # parked polls end by themselves

    with Server(("127.0.0.1", 0), Handler) as server:
        proxy.endpoint = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield proxy
        finally:
            server.shutdown()
            thread.join()
