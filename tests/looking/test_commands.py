"""R110: the commands that look leave a store byte for byte as it was, and Redis too."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pillarbox import DurableMailbox, open_mailbox
from pillarbox.dashboard import UrlMailboxes
from pillarbox.mailbox.redis import RedisMailbox
from pillarbox.testing.redis import RedisServer, shared_server
from tests.cli.support import Done, pillarbox, pillarbox_process
from tests.looking.support import POLICY, STATES, bytes_in, in_every_state, keys_of, wait_until

LOOKS = [
    ["queue", "ls", "{store}"],
    ["queue", "ls", "{store}", "--json"],
    ["queue", "info", "{url}"],
    *(["peek", "{url}", "--state", state, "--json"] for state in STATES),
    ["peek", "{url}_dlq"],
    ["tail", "{url}", "--limit", "1"],
    ["top", "{store}", "--once"],
    ["top", "{store}", "--once", "--json"],
]
OF_A_LOG = [
    ["log", "ls", "{path}"],
    ["log", "info", "{path}"],
    ["log", "info", "{url}", "--json"],
    ["log", "cat", "{path}", "--json"],
    ["log", "cat", "{path}", "--queue", "orders", "--limit", "3"],
    ["log", "verify", "{path}"],
    ["log", "repair", "{path}", "--dry-run"],
    ["doctor", "--data", "{path}", "--json"],
]


def the_words(command: list[str], **places: str) -> list[str]:
    return [word.format(**places) for word in command]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store that nobody has open, and in which time has done something since."""
    path = tmp_path_factory.mktemp("made") / "data"
    with DurableMailbox("orders", str, path=path, dead_letters=POLICY) as box:
        in_every_state(box, lambda seconds: None)
        wait_until(lambda: box.stats().ready == 4, "time has passed")
    return path


@pytest.fixture
def store(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "data"))


def done(command: list[str], path: Path) -> Done:
    url = f"file:{path}/orders"
    result = pillarbox(*the_words(command, path=str(path), url=url, store=f"file:{path}"))
    assert result.returncode == 0 or command[0] == "doctor", result.stderr
    return result


@pytest.mark.parametrize("command", LOOKS + OF_A_LOG, ids=" ".join)
def test_R110_a_command_that_looks_changes_no_byte_of_a_store(
    store: Path, command: list[str]
) -> None:
    before = bytes_in(store)
    result = done(command, store)
    assert bytes_in(store) == before
    assert result.stdout


@pytest.mark.parametrize("command", LOOKS + OF_A_LOG, ids=" ".join)
def test_R110_a_command_that_looks_changes_nothing_beside_a_writer(
    store: Path, command: list[str]
) -> None:
    with DurableMailbox("orders", str, path=store) as box:
        box._store.log.flush()
        before = bytes_in(store)
        done(command, store)
        assert bytes_in(store) == before


def test_R110_a_look_from_another_process_leaves_even_the_lock_as_it_was(store: Path) -> None:
    before = bytes_in(store)
    assert os.fsencode(str(os.getpid())) in before["log/lock"]
    seen = pillarbox_process("peek", f"file:{store}/orders", "--json")
    assert (seen.returncode, len(seen.stdout.splitlines())) == (0, 4)
    assert bytes_in(store) == before


def test_R110_control_a_mailbox_that_changes_something_is_noticed(store: Path) -> None:
    before = bytes_in(store)
    done(["receive", "{url}"], store)
    assert bytes_in(store) != before


def test_R110_a_queue_that_is_missing_is_not_made_by_a_look(store: Path) -> None:
    before = bytes_in(store)
    for command in (["peek"], ["queue", "info"], ["tail", "--limit", "1"], ["receive"]):
        assert pillarbox(command[0], *command[1:], f"file:{store}/oders").returncode == 1
    assert bytes_in(store) == before


def look_at_all(urls: list[str]) -> None:
    """What the pages of `pillarbox dashboard URL...` ask for."""
    boxes = UrlMailboxes(urls)
    for name in boxes.names():
        box = boxes.open(name)
        assert box is not None
        assert box.stats().total
        for state in STATES:
            for message in boxes.peek(name, state, 10, 0):
                assert boxes.find(name, message.id) is not None
                boxes.history(name, message.id)
        boxes.totals(name)
    boxes.close()


def test_R110_a_dashboard_for_urls_changes_no_byte_of_a_store(store: Path) -> None:
    before = bytes_in(store)
    look_at_all([f"file:{store}/orders"])
    with pytest.raises(ValueError, match="create=False"):
        UrlMailboxes([f"file:{store}/oders"])
    assert bytes_in(store) == before


def test_R110_a_dashboard_for_urls_changes_no_key_of_redis(
    on_redis: tuple[RedisServer, str],
) -> None:
    server, url = on_redis
    before = keys_of(server)
    look_at_all([url])
    with pytest.raises(ValueError, match="create=False"):
        UrlMailboxes([url.replace("orders", "oders")])
    assert keys_of(server) == before


@pytest.fixture(scope="module")
def on_redis() -> Iterator[tuple[RedisServer, str]]:
    """A queue with a journal, in which time has done something since. All tests only look."""
    server = shared_server()
    server.ask("FLUSHALL")
    options: Any = {"url": f"{server.url}/-", "dead_letters": POLICY, "journal": True}
    with RedisMailbox("orders", str, **options) as box:
        in_every_state(box, lambda seconds: None)
        wait_until(lambda: box.stats().ready == 4, "time has passed")
    yield server, f"{server.url}/orders"
    server.ask("FLUSHALL")


@pytest.mark.parametrize("command", LOOKS, ids=" ".join)
def test_R110_a_command_that_looks_changes_no_key_of_redis(
    on_redis: tuple[RedisServer, str], command: list[str]
) -> None:
    server, url = on_redis
    before = keys_of(server)
    store = url.removesuffix("orders")
    result = pillarbox(*the_words(command, path="", url=url, store=store))
    assert result.returncode == 0, result.stderr
    assert result.stdout
    assert keys_of(server) == before


def test_R110_a_queue_that_is_missing_on_redis_is_not_made_by_a_look(
    on_redis: tuple[RedisServer, str],
) -> None:
    server, url = on_redis
    before = keys_of(server)
    for command in (["peek"], ["queue", "info"], ["tail", "--limit", "1"], ["receive"]):
        assert pillarbox(command[0], *command[1:], url.replace("orders", "oders")).returncode == 1
    with pytest.raises(ValueError, match="create=False"):
        open_mailbox(url.replace("orders", "oders"), create=False)
    assert keys_of(server) == before
