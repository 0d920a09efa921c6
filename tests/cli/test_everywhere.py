"""Every command about queues and messages, on each kind of mailbox's URL."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pillarbox.testing.broker import running_broker
from pillarbox.testing.redis import shared_server
from tests.cli.support import Done, as_json, pillarbox

KINDS = ["file:", "http:", "redis:", "sqs+http:"]


@pytest.fixture(params=KINDS)
def place(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[str]:
    """What stands before the names of queues."""
    if request.param == "file:":
        yield f"file:{tmp_path}/data"
    elif request.param == "redis:":
        yield shared_server().url.rstrip("/")
    else:
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_DEFAULT_REGION"):
            monkeypatch.setenv(name, "us-east-1")
        with running_broker() as url:
            yield f"{request.param.removesuffix('http:')}{url}"


def done(*words: str) -> Done:
    """A command that must succeed."""
    found = pillarbox(*words)
    assert found.returncode == 0, (words, found.stderr)
    return found


def from_input(data: bytes, monkeypatch: pytest.MonkeyPatch, *words: str) -> Done:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
    return done(*words)


def listed(place: str) -> set[str]:
    return {queue["name"] for queue in as_json(done("queue", "ls", place, "--json"))["queues"]}


def test_R36_every_command_works_on_every_kind_of_url(
    place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"{place}/cli-orders"
    done("queue", "create", url, "--max-deliveries", "3")
    assert {"cli-orders", "cli-orders_dlq"} <= listed(place)
    (sent,) = as_json(done("send", url, "tea", "--priority", "7", "-a", "k=v", "--json"))["ids"]
    assert len(from_input(b"a\nb\n", monkeypatch, "send", url, "-", "--lines").stdout.split()) == 2
    info = as_json(done("queue", "info", url, "--json"))
    assert (info["ready"], info["dead_letters"]) == (3, "cli-orders_dlq")
    assert "cli-orders" in done("top", place, "--once").stdout
    peeked = pillarbox("peek", url, "--json")
    if place.startswith("sqs"):  # which can't, and says so
        assert (peeked.returncode, peeked.stderr.count("\n")) == (1, 1)
    else:
        assert [json.loads(line)["body"] for line in peeked.stdout.splitlines()] == [
            "tea",
            "a",
            "b",
        ]
    (received,) = done("receive", url, "-n", "1", "--json", "--ack").stdout.splitlines()
    told = json.loads(received)
    assert (told["id"], told["body"], told["priority"]) == (sent, "tea", 7)
    assert told["attributes"] == {"k": "v"}
    assert "a" in done("tail", url, "--take", "--limit", "1").stdout
    done("queue", "set", url, "--max-deliveries", "4")
    assert as_json(done("redrive", f"{url}_dlq", "--json")) == {"redriven": 0}
    purged = as_json(done("queue", "purge", url, "--yes", "--json"))["purged"]
    assert purged == [{"name": "cli-orders", "messages": 1}]
    done("queue", "rm", url, f"{url}_dlq", "--yes")
    assert not {"cli-orders", "cli-orders_dlq"} & listed(place)


def test_R36_a_queue_that_is_not_there_is_told_and_not_made(place: str) -> None:
    done("queue", "create", f"{place}/cli-there")
    before = listed(place)
    for words in (["queue", "info"], ["queue", "purge", "--yes"], ["queue", "rm", "--yes"],
                  ["receive"], ["peek"], ["tail"], ["redrive"]):  # fmt: skip
        found = pillarbox(*words, f"{place}/cli-nowhere")
        assert (found.returncode, found.stdout) == (1, ""), words
        assert "there is no queue 'cli-nowhere'" in found.stderr
    assert listed(place) == before


@pytest.mark.parametrize("words", [["queue", "create"], ["send"], ["peek"], ["queue", "ls"]])
def test_R36_memory_ends_with_the_process_so_no_command_takes_it(words: list[str]) -> None:
    found = pillarbox(*words, "memory:orders", *(["tea"] if words == ["send"] else []))
    assert found.returncode == 2
    assert "a memory: mailbox exists only in its own process" in found.stderr
