"""Real PostgreSQL servers for tests, on loopback, with new clusters in temporary directories.

PostgreSQL refuses to run as root, so root starts it as another user. Servers are stopped when the
test program ends. The clusters of the system are never touched.
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
_HOMES = "/usr/lib/postgresql"  # Debian's directory of the programs, by version
_USERS = ("postgres", "nobody")
# A crash of the server's process loses nothing, and tests do not simulate power loss.
UNSAFE = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}


@functools.cache
def programs() -> Path:
    """Return the directory with `initdb` and `postgres`."""
    initdb = shutil.which("initdb")
    if initdb is not None:
        return Path(initdb).resolve().parent
    homes = sorted(Path(_HOMES).glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    if not homes:
        raise FileNotFoundError("PostgreSQL is not installed; try: apt-get install postgresql")
    return homes[-1].parent


def _user() -> pwd.struct_passwd | None:
    """Return the user to run servers as; None for the current user."""
    if os.geteuid() != 0:
        return None
    for name in _USERS:
        with suppress(KeyError):
            return pwd.getpwnam(name)
    raise LookupError(f"root may not run PostgreSQL, and there is no user {' or '.join(_USERS)}")


class PostgresServer:
    """One server that a test can start, kill, restart and query."""

    def __init__(self, directory: str, settings: dict[str, str] | None = None) -> None:
        self.port = free_ports(1)[0]
        self.data = Path(directory) / str(self.port)
        self._settings = settings or {}
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """The URL of the database for tests, to which the name of a queue may be added."""
        return f"postgresql://postgres@127.0.0.1:{self.port}/postgres"

    @property
    def pid(self) -> int:
        """The id of the postmaster process."""
        assert self._process is not None, "the server is not running"
        return self._process.pid

    def create(self) -> None:
        """Create a new database cluster."""
        self._make_directory()
        options = "--auth=trust", "--no-sync", "--encoding=UTF8"
        self.run("initdb", "-D", str(self.data), "-U", "postgres", *options)

    def copy(self, primary: PostgresServer, name: str) -> None:
        """Create a standby of another server, with this application name."""
        self._make_directory()
        source = f"host=127.0.0.1 port={primary.port} user=postgres application_name={name}"
        how = ("-R", "-X", "stream", "--checkpoint=fast")
        self.run("pg_basebackup", "-D", str(self.data), "-d", source, *how)

    def _make_directory(self) -> None:
        self.data.mkdir(mode=0o700)
        user = _user()
        if user is not None:
            os.chown(self.data, user.pw_uid, user.pw_gid)

    def run(self, program: str, *arguments: str) -> None:
        """Run one of PostgreSQL's programs and wait for it."""
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
        """Kill all processes of the server with SIGKILL: no connection is closed cleanly."""
        if self._process is not None:
            for process in (self._process.pid, *_children(self._process.pid)):
                with suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
            self._process.wait()
            self._process = None
            with suppress(FileNotFoundError):
                (self.data / "postmaster.pid").unlink()

    def stop(self) -> None:
        """Shut down immediately (SIGQUIT), which requires crash recovery."""
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
        """Create an empty database and return its URL."""
        name = f"test_{secrets.token_hex(6)}"
        self.ask(f"CREATE DATABASE {name}")
        return f"postgresql://postgres@127.0.0.1:{self.port}/{name}"


def _children(parent: int) -> list[int]:
    """Return the child processes of the postmaster, each of which leads its own session."""
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
    """Start a server that runs until this process ends."""
    server = PostgresServer(until_exit.enter_context(directory()), settings)
    until_exit.callback(server.kill)
    server.create()
    server.start()
    return server


@functools.cache
def shared_server() -> PostgresServer:
    """Return a server shared by this process, which does not sync to disk."""
    return new_server(UNSAFE)


@functools.cache
def safe_server() -> PostgresServer:
    """Return a server shared by this process, with PostgreSQL's default durability."""
    return new_server()
