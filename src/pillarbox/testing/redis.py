"""Real Redis servers for tests: one, a cluster, or a master with sentinels, on loopback.

Every server is a process on a free port, with its files in a temporary directory, and is stopped
when the test program ends. Commands go through Pillarbox's own connection.
"""

from __future__ import annotations

import atexit
import functools
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import Any

from pillarbox.core.errors import MailboxError
from pillarbox.mailbox.redis.call import Call
from pillarbox.mailbox.redis.connection import RedisConnection
from pillarbox.mailbox.redis.options import servers_of_url

START_SECONDS_MAX = 30
INSTALL_SECONDS_MAX = 300
NODE_TIMEOUT_MS = 1_000
_SLOTS = 16_384
_POLL_SECONDS = 0.02
_RETRY_SECONDS = 0.5


@functools.cache
def program() -> str:
    """Return the path of `redis-server`; install it if it is missing and this is root."""
    path = shutil.which("redis-server")
    if path is None and os.geteuid() == 0 and shutil.which("apt-get"):
        command = ["apt-get", "install", "--yes", "--quiet", "redis-server"]
        environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
        with suppress(subprocess.TimeoutExpired):
            subprocess.run(
                command,
                env=environment,
                timeout=INSTALL_SECONDS_MAX,
                check=False,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
        path = shutil.which("redis-server")
    if path is None:
        raise FileNotFoundError("redis-server is not installed; try: apt-get install redis-server")
    return path


def until(condition: Callable[[], bool], what: str, seconds: float = START_SECONDS_MAX) -> None:
    """Wait until the condition is true; raise TimeoutError if that takes too long."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {seconds:g} seconds: {what}")
        time.sleep(_POLL_SECONDS)


def free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [
            stack.enter_context(closing(socket.create_server(("127.0.0.1", 0))))
            for _ in range(count)
        ]
        return [each.getsockname()[1] for each in sockets]


class RedisServer:
    """One server that a test can start, kill, restart and query."""

    def __init__(self, directory: str, port: int, *arguments: str, sentinel: bool = False) -> None:
        self.port = port
        self._directory = Path(directory) / str(port)
        self._directory.mkdir()
        self._arguments = arguments
        self._sentinel = sentinel
        self._process: subprocess.Popen[bytes] | None = None
        servers, *_ = servers_of_url(f"{self.url}/-", asynchronous=False)
        self._connection = RedisConnection(servers, _RETRY_SECONDS)

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}"

    def start(self) -> None:
        command = [program()]
        if self._sentinel:
            file = self._directory / "sentinel.conf"
            if not file.exists():
                file.write_text("\n".join((f"port {self.port}", *self._arguments)) + "\n")
            command += [str(file), "--sentinel"]
        else:
            command += ["--port", str(self.port), "--bind", "127.0.0.1", "--save", ""]
            command += ["--dir", str(self._directory), *self._arguments]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        until(self.answers, f"redis-server answers on port {self.port}")

    def kill(self) -> None:
        """Kill the server with SIGKILL, so that no connection is closed cleanly."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
        self._connection.close()

    def freeze(self) -> None:
        """Suspend the process (SIGSTOP); its connections stay open."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def answers(self) -> bool:
        try:
            return bool(self.ask("PING") == b"PONG")
        except MailboxError:
            return False

    def ask(self, *command: Any) -> Any:
        return self._connection.do(Call("-", 0, None, list(command)))

    def info(self, section: str) -> dict[str, str]:
        lines = self.ask("INFO", section).decode().splitlines()
        return dict(line.split(":", 1) for line in lines if ":" in line)

    def blocked(self) -> list[int]:
        """Return the ids of the clients that wait in a blocking command."""
        clients = self.ask("CLIENT", "LIST").decode().splitlines()
        fields = (dict(each.partition("=")[::2] for each in line.split(" ")) for line in clients)
        return [int(each["id"]) for each in fields if "b" in each["flags"]]


class RedisCluster:
    """A cluster of masters with a replica each."""

    def __init__(self, directory: str, masters: int = 3, replicas: int = 1) -> None:
        count = masters * (1 + replicas)
        ports = free_ports(2 * count)
        self.nodes = [
            RedisServer(
                directory,
                port,
                *("--cluster-enabled", "yes", "--cluster-port", str(bus)),
                *("--cluster-node-timeout", str(NODE_TIMEOUT_MS)),
                *("--cluster-replica-validity-factor", "0", "--repl-diskless-sync-delay", "0"),
                *("--repl-ping-replica-period", "1", "--appendonly", "no"),
            )
            for port, bus in zip(ports[:count], ports[count:], strict=True)
        ]
        self._buses = dict(zip(ports[:count], ports[count:], strict=True))
        self._masters = masters

    @property
    def url(self) -> str:
        hosts = ",".join(f"127.0.0.1:{node.port}" for node in self.nodes)
        return f"redis+cluster://{hosts}"

    def start(self) -> None:
        for node in self.nodes:
            node.start()
        first, *others = self.nodes
        for node in others:
            first.ask("CLUSTER", "MEET", "127.0.0.1", node.port, self._buses[node.port])
        until(
            lambda: all(_known_nodes(node) == len(self.nodes) for node in self.nodes),
            "the nodes of the cluster know each other",
        )
        masters, replicas = self.nodes[: self._masters], self.nodes[self._masters :]
        for i, node in enumerate(masters):
            slots = i * _SLOTS // len(masters), (i + 1) * _SLOTS // len(masters) - 1
            node.ask("CLUSTER", "ADDSLOTSRANGE", *slots)
        for i, node in enumerate(replicas):
            master = masters[i % len(masters)].ask("CLUSTER", "MYID")
            until(functools.partial(_replicate, node, master), "a replica has a master")
        self.wait_until_whole()

    def wait_until_whole(self) -> None:
        """Wait until every node is up, every slot is served and every replica is in sync."""
        until(lambda: all(map(self._is_whole, self.nodes)), "the cluster is complete")

    def _is_whole(self, node: RedisServer) -> bool:
        try:
            state = node.ask("CLUSTER", "INFO").decode()
            role = node.info("replication")
            nodes = node.ask("CLUSTER", "NODES").decode()
        except MailboxError:
            return False
        in_sync = role["role"] == "slave" and role["master_link_status"] == "up"
        has_replica = role["role"] == "master" and int(role["connected_slaves"]) > 0
        return "cluster_state:ok" in state and (in_sync or has_replica) and "fail" not in nodes

    def master_of(self, slot: int) -> RedisServer:
        """Return the node that serves a slot, as reported by a running node."""
        return next(node for first, last, node in self._slots() if first <= slot <= last)

    def masters(self) -> list[RedisServer]:
        """Return the nodes that serve slots."""
        return list({node.port: node for _, _, node in self._slots()}.values())

    def _slots(self) -> list[tuple[int, int, RedisServer]]:
        by_port = {node.port: node for node in self.nodes}
        for node in self.nodes:
            with suppress(MailboxError):
                slots = node.ask("CLUSTER", "SLOTS")
                return [(first, last, by_port[master[1]]) for first, last, master, *_ in slots]
        raise LookupError("no node of the cluster answers")

    def replica_of(self, master: RedisServer) -> RedisServer:
        port = master.ask("ROLE")[2][0][1]
        return next(node for node in self.nodes if node.port == int(port))

    def kill(self) -> None:
        for node in self.nodes:
            node.kill()


def _known_nodes(node: RedisServer) -> int:
    return sum(b"handshake" not in line for line in node.ask("CLUSTER", "NODES").splitlines())


def _replicate(node: RedisServer, master: bytes) -> bool:
    try:
        node.ask("CLUSTER", "REPLICATE", master)
    except MailboxError:
        return False
    return True


@contextmanager
def directory() -> Iterator[str]:
    """Yield a temporary directory for servers, which other users may enter."""
    path = tempfile.mkdtemp(prefix="pillarbox-servers-")
    os.chmod(path, 0o755)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


until_exit = ExitStack()
atexit.register(until_exit.close)


@functools.cache
def shared_server() -> RedisServer:
    """Return a server shared by this process until it ends."""
    server = RedisServer(until_exit.enter_context(directory()), free_ports(1)[0])
    until_exit.callback(server.kill)
    server.start()
    return server


@functools.cache
def shared_cluster() -> RedisCluster:
    """Return a cluster of three masters and three replicas, shared by this process."""
    cluster = RedisCluster(until_exit.enter_context(directory()))
    until_exit.callback(cluster.kill)
    cluster.start()
    return cluster
