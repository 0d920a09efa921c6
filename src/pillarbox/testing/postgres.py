"""Real PostgreSQL servers for tests, on loopback, with new clusters in temporary directories.

PostgreSQL refuses to run as root, so root starts it as another user. A server stops with the test
program at the latest. The cluster of the system is never touched.
"""

from __future__ import annotations

import functools
import os
import pwd
import secrets
import shutil
import signal
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Any

import psycopg

from pillarbox.testing.redis import directory, free_ports, until, until_exit

START_SECONDS_MAX = 60
_HOMES = "/usr/lib/postgresql"  # where Debian has the programs, by version
_USERS = ("postgres", "nobody")
# Nothing is lost by a crash of the server's process; what a loss of power takes, no test misses.
UNSAFE = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}


@functools.cache
def programs() -> Path:
    """The directory with `initdb` and `postgres`."""
    found = shutil.which("initdb")
    if found is not None:
        return Path(found).resolve().parent
    homes = sorted(Path(_HOMES).glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    if not homes:
        raise FileNotFoundError("PostgreSQL is not installed; try: apt-get install postgresql")
    return homes[-1].parent


def _user() -> pwd.struct_passwd | None:
    """Who runs the servers; None: we do."""
    if os.geteuid() != 0:
        return None
    for name in _USERS:
        with suppress(KeyError):
            return pwd.getpwnam(name)
    raise LookupError(f"root may not run PostgreSQL, and there is no user {' or '.join(_USERS)}")


class PostgresServer:
    """One server; `kill` it, `start` it again, ask it something."""

    def __init__(self, directory: str, settings: dict[str, str] | None = None) -> None:
        self.port = free_ports(1)[0]
        self.data = Path(directory) / str(self.port)
        self._settings = settings or {}
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Its database for tests, to which the name of a queue may be added."""
        return f"postgresql://postgres@127.0.0.1:{self.port}/postgres"

    @property
    def pid(self) -> int:
        """Of its first process, whose children do the work."""
        assert self._process is not None, "it does not run"
        return self._process.pid

    def create(self) -> None:
        """Make a new cluster."""
        self._make_directory()
        options = "--auth=trust", "--no-sync", "--encoding=UTF8"
        self.run("initdb", "-D", str(self.data), "-U", "postgres", *options)

    def copy(self, primary: PostgresServer, name: str) -> None:
        """Make a standby of another server, known to it by this name."""
        self._make_directory()
        source = f"host=127.0.0.1 port={primary.port} user=postgres application_name={name}"
        self.run("pg_basebackup", "-D", str(self.data), "-d", source, "-R", "-X", "stream")

    def _make_directory(self) -> None:
        self.data.mkdir(mode=0o700)
        user = _user()
        if user is not None:
            os.chown(self.data, user.pw_uid, user.pw_gid)

    def run(self, program: str, *arguments: str) -> None:
        """Run one of the programs to its end."""
        subprocess.run(
            [programs() / program, *arguments],
            check=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            **_as_user(),
        )

    def start(self, *, wait: bool = True) -> None:
        settings = {
            "port": str(self.port),
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": "",
            "max_connections": "200",
            "log_min_messages": "fatal",
            **self._settings,
        }
        options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        self._process = subprocess.Popen(
            [programs() / "postgres", "-D", str(self.data), *options],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            **_as_user(),
        )
        if wait:
            until(self.answers, f"PostgreSQL answers on port {self.port}", START_SECONDS_MAX)

    def kill(self) -> None:
        """SIGKILL to all of its processes: no farewell to anyone."""
        if self._process is not None:
            for process in (self._process.pid, *_children(self._process.pid)):
                with suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
            self._process.wait()
            self._process = None
            with suppress(FileNotFoundError):
                (self.data / "postmaster.pid").unlink()

    def stop(self) -> None:
        """An immediate shutdown, as before a crash."""
        if self._process is not None:
            self._process.send_signal(signal.SIGQUIT)
            self._process.wait()
            self._process = None

    def answers(self) -> bool:
        try:
            self.ask("SELECT 1")
        except psycopg.Error:
            return False
        return True

    def ask(self, statement: str, parameters: tuple[Any, ...] = ()) -> list[Any]:
        with psycopg.connect(self.url, autocommit=True) as connection:
            cursor = connection.execute(statement, parameters)
            return cursor.fetchall() if cursor.description else []

    def database(self) -> str:
        """The URL of a new and empty database."""
        name = f"test_{secrets.token_hex(6)}"
        self.ask(f"CREATE DATABASE {name}")
        return f"postgresql://postgres@127.0.0.1:{self.port}/{name}"


def _children(parent: int) -> list[int]:
    """The processes of a server beside its first; each leads a session of its own."""
    try:
        text = Path(f"/proc/{parent}/task/{parent}/children").read_text()
    except FileNotFoundError:
        return []
    return [int(word) for word in text.split()]


def _as_user() -> dict[str, Any]:
    user = _user()
    extra: dict[str, Any] = {"start_new_session": True, "env": {"PATH": os.defpath, "LC_ALL": "C"}}
    if user is not None:
        extra |= {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
    return extra


def new_server(settings: dict[str, str] | None = None) -> PostgresServer:
    """A server that runs, until this process ends."""
    server = PostgresServer(until_exit.enter_context(directory()), settings)
    until_exit.callback(server.kill)
    server.create()
    server.start()
    return server


@functools.cache
def shared_server() -> PostgresServer:
    """A server for everyone in this process, which does not sync its disk."""
    return new_server(UNSAFE)


@functools.cache
def safe_server() -> PostgresServer:
    """A server for everyone in this process, with the durability that PostgreSQL has by default."""
    return new_server()
