"""`pillarbox send`, `receive`, `peek`, `redrive` and `tail`, on a broker and on a store."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pillarbox import open_mailbox
from pillarbox.testing.broker import running_broker
from tests.cli.support import Done, as_json, pillarbox


@pytest.fixture(params=["broker", "store"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "store":
        yield f"file:{tmp_path}/data/orders"
        return
    with running_broker() as broker:
        yield f"{broker}/orders"


def lines(done: Done) -> list[Any]:
    assert done.stderr == ""
    return [json.loads(line) for line in done.stdout.splitlines()]


def piped(monkeypatch: pytest.MonkeyPatch, data: bytes, *words: str) -> Done:
    """Run a command with this on its standard input."""
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
    return pillarbox(*words)


def test_R1_send_prints_the_id_and_receive_the_message(url: str) -> None:
    sent = pillarbox("send", url, '{"tea": 2}', "--priority", "9", "-a", "shop=ada", "-a", "k=v=w")
    assert sent.returncode == 0
    message_id = sent.stdout.strip()
    (message,) = lines(pillarbox("receive", url, "--json"))
    assert (message["id"], message["body"], message["priority"]) == (message_id, {"tea": 2}, 9)
    assert message["attributes"] == {"shop": "ada", "k": "v=w"}
    assert message["delivery_count"] == 1
    assert message["receipt_handle"]


def test_R6_what_was_received_comes_back_unless_it_was_acknowledged(url: str) -> None:
    pillarbox("send", url, "a")
    assert "a" in pillarbox("receive", url, "--visibility", "0").stdout
    again = pillarbox("receive", url, "--ack")
    assert "delivery 2" in again.stdout
    empty = pillarbox("receive", url)
    assert (empty.returncode, empty.stdout) == (1, "")


def test_R1_a_delayed_message_is_peeked_at_where_it_is(url: str) -> None:
    pillarbox("send", url, "later", "--delay", "600", "--json")
    assert pillarbox("peek", url).stdout == ""
    (seen,) = lines(pillarbox("peek", url, "--state", "scheduled", "--json"))
    assert (seen["body"], seen["body_format"], seen["delivery_count"]) == ("later", "text", 0)
    assert "receipt_handle" not in seen


def test_R1_a_deduplication_id_makes_two_sends_one(url: str) -> None:
    first = as_json(pillarbox("send", url, "a", "--deduplication-id", "x", "--json"))
    assert as_json(pillarbox("send", url, "a", "--deduplication-id", "x", "--json")) == first
    assert len(lines(pillarbox("peek", url, "--json"))) == 1


def test_R38_standard_input_is_a_message_or_a_message_a_line(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = piped(monkeypatch, "zwei\nZeilen ü".encode(), "send", url, "-")
    assert whole.returncode == 0, whole.stderr
    many = piped(monkeypatch, b"a\nb\n\nc\n" * 5, "send", url, "-", "--lines", "--json")
    assert len(as_json(many)["ids"]) == 15
    raw = piped(monkeypatch, b"\xff\x00", "send", url)
    assert raw.returncode == 0, raw.stderr
    seen = lines(pillarbox("peek", url, "-n", "100", "--json"))
    assert seen[0]["body"] == "zwei\nZeilen ü"
    assert [each["body"] for each in seen[1:16]] == ["a", "b", "c"] * 5
    assert (seen[16]["body"], seen[16]["body_format"]) == ("ff00", "hex")


def test_R59_what_a_sender_wrote_can_t_speak_to_the_terminal(url: str) -> None:
    pillarbox("send", url, "\x1b[31mred\nnext", "-a", "x=\x1b]0;title\x07")
    shown = pillarbox("peek", url).stdout
    assert "\x1b" not in shown
    assert shown.count("\n") == 1
    assert "red" in shown


def test_R39_dead_letters_are_seen_and_redriven(url: str) -> None:
    pillarbox("queue", "create", url, "--max-deliveries", "1", "--dead-letters", "graves")
    graves = url.replace("orders", "graves")
    with open_mailbox(url, str) as box:
        box.send_many(["slow", "bad", "bad too"])
        for message in box.receive(max_messages=3):
            message.reject("timeout" if message.body == "slow" else "no such customer")
    seen = lines(pillarbox("peek", graves, "--json"))
    assert seen[0]["dead_letter"]["reason"] == "timeout"
    assert "no such customer" in pillarbox("peek", graves).stdout
    by_reason = as_json(pillarbox("redrive", graves, "--reason", "time", "--json"))
    assert by_reason == {"redriven": 1}
    by_id = as_json(pillarbox("redrive", graves, seen[2]["id"], "--json"))
    assert by_id == {"redriven": 1}
    missing = pillarbox("redrive", graves, "--to", "others")
    assert (missing.returncode, "a queue that exists" in missing.stderr) == (1, True)
    others = url.replace("orders", "others")
    pillarbox("queue", "create", others)
    assert "1 message redriven" in pillarbox("redrive", graves, "--to", "others").stdout
    assert [each["body"] for each in lines(pillarbox("peek", url, "--json"))] == ["slow", "bad too"]
    assert [each["body"] for each in lines(pillarbox("peek", others, "--json"))] == ["bad"]


def test_R14_tail_prints_what_is_there_and_takes_nothing(url: str) -> None:
    pillarbox("send", url, "a")
    pillarbox("send", url, "b", "--delay", "600")
    assert [each["body"] for each in lines(pillarbox("tail", url, "--limit", "2", "--json"))] == [
        "a",
        "b",
    ]
    assert lines(pillarbox("receive", url, "--json"))[0]["delivery_count"] == 1
    assert pillarbox("tail", url, "--limit", "0").returncode == 2


def test_R14_tail_that_takes_waits_and_acknowledges() -> None:
    with running_broker() as broker, open_mailbox(f"{broker}/orders", str) as box:
        command = [sys.executable, "-m", "pillarbox.cli", "tail", f"{broker}/orders"]
        command += ["--take", "--limit", "2", "--json"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as tail:
            assert tail.stdout is not None
            box.send("one")
            assert json.loads(tail.stdout.readline())["body"] == "one"
            box.send("two")
            assert json.loads(tail.stdout.readline())["body"] == "two"
            assert tail.wait(30) == 0
        assert box.stats().total == 0


@pytest.mark.parametrize("verb", ["receive", "peek", "redrive", "tail"])
def test_R35_reading_makes_no_queue(url: str, verb: str) -> None:
    pillarbox("send", url, "a")
    done = pillarbox(verb, url.replace("orders", "odrers"))
    assert done.returncode == 1
    assert "no queue 'odrers'" in done.stderr


WRONG = [
    ["send", "{url}", "a", "-a", "novalue"],
    ["send", "{url}", "a", "--priority", "256"],
    ["send", "{url}", "a", "--delay", "-1"],
    ["send", "{url}", "a", "--group", "with blank"],
    ["receive", "{url}", "-n", "0"],
    ["peek", "{url}", "--state", "dead"],
    ["redrive", "{url}", "--to", "no/name"],
]


@pytest.mark.parametrize("words", WRONG, ids=lambda words: " ".join(words[2:]))
def test_R22_a_wrong_option_is_told_in_one_line(url: str, words: list[str]) -> None:
    pillarbox("send", url, "a")
    done = pillarbox(*(word.format(url=url) for word in words))
    assert done.returncode in (1, 2)
    assert done.stderr.count("\n") == 1
