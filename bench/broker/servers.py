"""Servers of our own on free ports, each in its process: the broker, Redis, moto."""

from __future__ import annotations

import json
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from bench.harness import UnavailableError

START_SECONDS_MAX = 30
QUEUE = "bench"


@contextmanager
def broker(path: Path | None, durability: str = "fsync") -> Iterator[tuple[str, int]]:
    """A broker with an empty queue; its URL and process. Without a path it is in memory only."""
    data = "none" if path is None else str(path / "data")
    command = [sys.executable, "-m", "pillarbox.cli", "serve", "--port", "0", "--json"]
    command += ["--data", data, "--durability", durability]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    try:
        url = json.loads(server.stdout.readline())["url"]
        create(url)
        yield url, server.pid
    finally:
        server.send_signal(signal.SIGKILL)
        server.wait()
        server.stdout.close()


def create(url: str, name: str = QUEUE) -> None:
    headers = {
        "X-Amz-Target": "AmazonSQS.CreateQueue",
        "Content-Type": "application/x-amz-json-1.0",
    }
    body = json.dumps({"QueueName": name}).encode()
    request = urllib.request.Request(f"{url}/", body, headers)
    with urllib.request.urlopen(request, timeout=START_SECONDS_MAX) as answer:
        assert answer.status == 200


@contextmanager
def redis(path: Path, *, synced: bool) -> Iterator[tuple[int, int]]:
    """A Redis server, with an append-only file that is synced always, or without.

    Its port and process.
    """
    program = shutil.which("redis-server")
    if program is None or shutil.which("redis-benchmark") is None:
        raise UnavailableError("redis-server and redis-benchmark are not installed")
    port = free_port()
    options = {"port": str(port), "bind": "127.0.0.1", "dir": str(path), "save": ""}
    options |= {"appendonly": "yes" if synced else "no", "appendfsync": "always"}
    command = [program]
    for name, value in options.items():
        command += [f"--{name}", value]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        wait_for(port)
        yield port, server.pid
    finally:
        server.terminate()
        server.wait()


@contextmanager
def moto() -> Iterator[str]:
    """moto's server with the queue; its URL."""
    port = free_port()
    command = [sys.executable, "-m", "moto.server", "-p", str(port)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_for(port)
        url = f"http://127.0.0.1:{port}"
        create(url)
        yield url
    finally:
        server.terminate()
        server.wait()


def free_port() -> int:
    with closing(socket.create_server(("127.0.0.1", 0))) as free:
        port: int = free.getsockname()[1]
        return port


def wait_for(port: int) -> None:
    deadline = time.monotonic() + START_SECONDS_MAX
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            if time.monotonic() > deadline:
                raise UnavailableError(f"nothing answers at port {port}") from None
            time.sleep(0.05)
        else:
            return
