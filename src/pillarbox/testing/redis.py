"""Real Redis servers for tests: one, a cluster, or a master with sentinels, on loopback.

Every server is a process of its own on a free port, with its files in a temporary directory,
and ends with the test program at the latest. What is asked of them goes over our own link.
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
_LOOK_SECONDS = 0.02
_RETRY_SECONDS = 0.5


@functools.cache
def program() -> str:
    """The server's program; installed if it is missing and we may."""
    found = shutil.which("redis-server")
    if found is None and os.geteuid() == 0 and shutil.which("apt-get"):
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
        found = shutil.which("redis-server")
    if found is None:
        raise FileNotFoundError("redis-server is not installed; try: apt-get install redis-server")
    return found


def until(condition: Callable[[], bool], what: str, seconds: float = START_SECONDS_MAX) -> None:
    """Return once this holds."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {seconds:g} seconds: {what}")
        time.sleep(_LOOK_SECONDS)


def free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [
            stack.enter_context(closing(socket.create_server(("127.0.0.1", 0))))
            for _ in range(count)
        ]
        return [each.getsockname()[1] for each in sockets]


class RedisServer:
    """One server; `kill` it, `start` it again, ask it something."""

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
        """SIGKILL: no farewell to anyone."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
        self._connection.close()

    def freeze(self) -> None:
        """It stops, and keeps its connections."""
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
        """The ids of the clients that are parked."""
        clients = self.ask("CLIENT", "LIST").decode().splitlines()
        fields = (dict(each.partition("=")[::2] for each in line.split(" ")) for line in clients)
        return [int(each["id"]) for each in fields if "b" in each["flags"]]


class RedisCluster:
    """Masters with a replica each."""

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
            lambda: all(_known(node) == len(self.nodes) for node in self.nodes),
            "the nodes of the cluster know one another",
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
        """Every node is there, every slot is served, every replica is in step."""
        until(lambda: all(map(self._is_whole, self.nodes)), "the cluster is whole")

    def _is_whole(self, node: RedisServer) -> bool:
        try:
            state = node.ask("CLUSTER", "INFO").decode()
            role = node.info("replication")
            shown = node.ask("CLUSTER", "NODES").decode()
        except MailboxError:
            return False
        in_step = role["role"] == "slave" and role["master_link_status"] == "up"
        has_replica = role["role"] == "master" and int(role["connected_slaves"]) > 0
        return "cluster_state:ok" in state and (in_step or has_replica) and "fail" not in shown

    def master_of(self, slot: int) -> RedisServer:
        """The node that serves a slot, by the word of one that runs."""
        return next(node for first, last, node in self._slots() if first <= slot <= last)

    def masters(self) -> list[RedisServer]:
        """The nodes that serve slots."""
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


def _known(node: RedisServer) -> int:
    return sum(b"handshake" not in line for line in node.ask("CLUSTER", "NODES").splitlines())


def _replicate(node: RedisServer, master: bytes) -> bool:
    try:
        node.ask("CLUSTER", "REPLICATE", master)
    except MailboxError:
        return False
    return True


@contextmanager
def directory() -> Iterator[str]:
    """A directory for the files of servers, which a server of another user may enter."""
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
    """A server for everyone in this process, until it ends."""
    server = RedisServer(until_exit.enter_context(directory()), free_ports(1)[0])
    until_exit.callback(server.kill)
    server.start()
    return server


@functools.cache
def shared_cluster() -> RedisCluster:
    """A cluster of three masters and three replicas, likewise."""
    cluster = RedisCluster(until_exit.enter_context(directory()))
    until_exit.callback(cluster.kill)
    cluster.start()
    return cluster
