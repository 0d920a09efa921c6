"""Servers on free ports, each in its own process: the broker, ElasticMQ, Redis, moto."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from bench.broker.load import QUEUE, read_answer
from bench.broker.sdk import KEY_ID, SECRET, Requests
from bench.harness import UnavailableError

START_SECONDS_MAX = 30
ELASTICMQ_VERSION = "1.7.1"


@contextmanager
def broker(
    path: Path | None,
    durability: str = "fsync",
    *,
    checked: bool = False,
    shared: str | None = None,
) -> Iterator[tuple[str, int]]:
    """A broker with an empty queue; its URL and process. Without a path it is in memory only.

    Signatures are checked if that is asked for. `shared` is the URL of a store to share.
    """
    command = [sys.executable, "-m", "pillarbox.cli", "serve", "--port", "0", "--json"]
    if shared is not None:
        command += ["--store", shared]
    else:
        data = "none" if path is None else str(path / "data")
        command += ["--data", data, "--durability", durability]
    environment = dict(os.environ)
    if checked:
        environment["PILLARBOX_KEY"] = f"{KEY_ID}:{SECRET}"
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    assert server.stdout is not None
    try:
        url = json.loads(server.stdout.readline())["url"]
        create(url)
        yield url, server.pid
    finally:
        server.send_signal(signal.SIGKILL)
        server.wait()
        server.stdout.close()


def create(url: str) -> None:
    address = url.removeprefix("http://")
    requests = Requests(address, QUEUE)
    host, _, port = address.partition(":")
    with socket.create_connection((host, int(port)), timeout=START_SECONDS_MAX) as connection:
        connection.sendall(requests.create(QUEUE))
        read_answer(connection)


@contextmanager
def elasticmq() -> Iterator[tuple[str, int]]:
    """ElasticMQ with the queue; its URL and process."""
    classes = _elasticmq_jars()
    port = free_port()
    settings = {
        "rest-sqs.bind-hostname": "127.0.0.1",
        "rest-sqs.bind-port": port,
        "rest-sqs.sqs-limits": "relaxed",
        "rest-stats.enabled": "false",
    }
    options = [f"-D{name}={value}" for name, value in settings.items()]
    command = ["java", *options, "-cp", f"{classes}/*", "org.elasticmq.server.Main"]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_for(port)
        url = f"http://127.0.0.1:{port}"
        create(url)
        yield url, server.pid
    finally:
        server.terminate()
        server.wait()


def _elasticmq_jars() -> Path:
    """Where its classes are: fetched once from Maven Central, by the Ivy that PySpark brings."""
    target = Path.home() / ".cache" / "pillarbox-bench" / f"elasticmq-{ELASTICMQ_VERSION}"
    if target.exists():
        return target
    ivy = next(Path(sysconfig.get_path("purelib")).glob("pyspark/jars/ivy-*.jar"), None)
    if shutil.which("java") is None or ivy is None:
        raise UnavailableError("ElasticMQ needs Java and PySpark")
    with tempfile.TemporaryDirectory() as work:
        pattern = f"{work}/jars/[artifact]-[revision].[ext]"
        artifact = ["org.elasticmq", "elasticmq-server_2.13", ELASTICMQ_VERSION]
        command = ["java", "-jar", str(ivy), "-cache", f"{work}/cache", "-confs", "default"]
        command += ["-dependency", *artifact, "-retrieve", pattern]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise UnavailableError("ElasticMQ could not be fetched")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(f"{work}/jars", target)
    return target


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
