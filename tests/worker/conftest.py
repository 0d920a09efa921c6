"""Where the tests of workers run: every test that asks for `place` runs on each backend."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from pillarbox import Mailbox, open_mailbox
from pillarbox.testing.broker import running_broker
from pillarbox.testing.redis import shared_server
from pillarbox.worker import Worker

PATIENCE_SECONDS = 30


class Place:
    """A backend, and the mailboxes that a test opens on it."""

    def __init__(self, kind: str, url_of: Callable[[str], str]) -> None:
        self.kind = kind
        self.url_of = url_of
        self._stack = ExitStack()

    def open(self, name: str, body_type: Any = str, **options: Any) -> Mailbox[Any]:
        return self._stack.enter_context(open_mailbox(self.url_of(name), body_type, **options))

    def close(self) -> None:
        self._stack.close()


@pytest.fixture(scope="session")
def broker_url() -> Iterator[str]:
    with running_broker() as url:
        yield url


def url_maker(kind: str, request: pytest.FixtureRequest, path: Path) -> Callable[[str], str]:
    """How mailboxes are named on this backend; each test has names of its own."""
    unique = secrets.token_hex(6)
    bases = {
        "memory": lambda: "memory:",
        "file": lambda: f"file:{path}/store/",
        "redis": lambda: f"{shared_server().url}/",
        "broker": lambda: f"{request.getfixturevalue('broker_url')}/",
    }
    base = bases[kind]()
    return lambda name: f"{base}{name}-{unique}"


@pytest.fixture(params=["memory", "file", "redis", "broker"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    """Each backend in turn."""
    place = Place(request.param, url_maker(request.param, request, tmp_path))
    yield place
    place.close()


@pytest.fixture(params=["redis", "broker"])
def shared_place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    """Each backend that processes can share."""
    place = Place(request.param, url_maker(request.param, request, tmp_path))
    yield place
    place.close()


@pytest.fixture
def running() -> Iterator[Callable[..., threading.Thread]]:
    """Runs workers in threads; what they raised fails the test."""
    workers: list[tuple[Any, threading.Thread]] = []
    errors: list[BaseException] = []

    def start(worker: Any, **options: Any) -> threading.Thread:
        def run() -> None:
            try:
                worker.run(**options)
            except BaseException as error:  # noqa: BLE001 - the test shall see it
                errors.append(error)

        thread = threading.Thread(target=run, daemon=True)
        workers.append((worker, thread))
        thread.start()
        return thread

    yield start
    for worker, thread in workers:
        worker.stop() if isinstance(worker, Worker) else worker.shutdown()
        thread.join(PATIENCE_SECONDS)
        assert not thread.is_alive(), "the worker did not stop"
    assert errors == []


def eventually(condition: Callable[[], Any], what: str = "") -> Any:
    """Return what `condition` answers once that is true."""
    until = time.monotonic() + PATIENCE_SECONDS
    while not (found := condition()):
        assert time.monotonic() < until, what or "it never happened"
        time.sleep(0.002)
    return found
