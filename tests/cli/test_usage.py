"""A wrong command line: the message blames what was typed, and names the help to read."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from tests.cli.support import fill, on_a_terminal, pillarbox, pillarbox_process


@pytest.mark.parametrize(
    ("words", "message", "help_of"),
    [
        (("serv",), "there is no command 'serv'; did you mean 'serve'?", ""),
        (("nonsense",), "there is no command 'nonsense'.", ""),
        (("queue", "crate"), "there is no command 'crate'; did you mean 'create'?", "queue "),
        (("queue", "ls"), "URL is missing.", "queue ls "),
        (("queue", "ls", "orders"), "URL must be of the form", "queue ls "),
        (("send", "file:{}/orders", "a", "b"), "unexpected argument 'b'.", "send "),
        (("send", "file:{}/orders", "--prioriti=3"), "there is no option --prioriti=3;", "send "),
        (("send", "file:{}/orders", "a", "--priority"), "--priority needs a value.", "send "),
        (("send", "file:{}/orders", "a", "--priority", "x"), "--priority must be a whole", "send "),
        (("send", "file:{}/orders", "a", "--priority", "999"), "--priority must be a", "send "),
        (("send", "file:{}/orders", "a", "--delay", "-1"), "--delay must be from 0", "send "),
        (("send", "http://localhost:9324", "a"), "names no queue; add its name", "send "),
        (("receive", "file:{}/orders", "--max", "0"), "--max must be a whole number", "receive "),
        (("receive", "file:{}/orders", "--maxi", "0"), "Did you mean --max?", "receive "),
        (("queue", "create", "file:{}/x", "--max-deliveries", "0"), "--max-del", "queue create "),
        (("serve", "--port", "99999"), "--port must be a whole number from 0", "serve "),
        (
            ("dashboard", "file:{}/orders", "--port", "99999"),
            "--port must be a whole",
            "dashboard ",
        ),
        (("worker", "shop", "--health-port", "99999"), "--health-port must be a whole", "worker "),
        (("worker", "shop", "--grace", "nan"), "--grace must be from 0 to 43,200", "worker "),
        (("worker", "shop", "--grace", "-1"), "--grace must be from 0 to 43,200", "worker "),
        (("top", "file:{}", "--interval", "inf"), "--interval must be from 0 to 43,200", "top "),
        (("top", "file:{}", "--interval", "0"), "--interval must be more than 0 seconds", "top "),
        (("bench", "--seconds", "0"), "--seconds must be more than 0 seconds", "bench "),
        (("pipeline", "peek", "a:b", "c", "--limit", "0"), "--limit must be 1", "pipeline peek "),
        (("pipeline", "run", "a:b", "--max-rows", "0"), "--max-rows must be 1", "pipeline run "),
        (("pipeline", "run", "a:b", "--retries=-1"), "--retries must be 0", "pipeline run "),
        (("pipeline", "run", "a:b", "--max-failed=-1"), "--max-failed must be", "pipeline run "),
        (("log", "cat", "{}", "--from", "²"), "--from must be an index (1200)", "log cat "),
    ],
)
def test_R36_a_usage_error_blames_what_was_typed(
    tmp_path: Path, words: tuple[str, ...], message: str, help_of: str
) -> None:
    fill(tmp_path)

    done = pillarbox(*(word.format(tmp_path) for word in words))

    assert done.returncode == 2
    assert message in done.stderr
    assert done.stderr.endswith(f"See 'pillarbox {help_of}--help'.\n")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    "words", [("backup", "{}", "to"), ("restore", "x", "{}"), ("log", "info", "{}")]
)
def test_R59_a_url_of_the_wrong_kind_is_shown_without_its_password(words: tuple[str, ...]) -> None:
    done = pillarbox(*(word.format("redis://boss:hidden@host/orders") for word in words))

    assert done.returncode in (1, 2)
    assert "redis://boss@host/orders" in done.stderr
    assert "hidden" not in done.stderr


def test_R36_a_queue_that_does_not_exist_is_no_error_of_usage(tmp_path: Path) -> None:
    fill(tmp_path)

    done = pillarbox("redrive", f"file:{tmp_path}/orders_dlq", "--to", "ordres")

    assert done.returncode == 1
    assert "--to must be the name of a queue that exists" in done.stderr


@pytest.mark.parametrize(
    ("words", "choose"),
    [
        (("serve", "--data", "none", "--port", "{port}"), "--host or --port"),
        (("dashboard", "file:{store}/orders", "--port", "{port}"), "--port"),
        (("worker", "shop:pack", "--health-port", "{port}"), "--health-port"),
    ],
)
def test_R59_a_port_that_is_taken_is_reported_with_what_to_do(
    tmp_path: Path, words: tuple[str, ...], choose: str
) -> None:
    fill(tmp_path)
    with socket.create_server(("", 0)) as other:
        port = other.getsockname()[1]
        done = pillarbox_process(*(word.format(port=port, store=tmp_path) for word in words))

    assert done.returncode == 1
    assert done.stderr.endswith(f"{port}: Address already in use; choose another {choose}\n")
    assert done.stderr.count("\n") == 1


def test_R59_a_host_that_is_unknown_is_reported_by_its_reason() -> None:
    words = ("--host", "nowhere.invalid", "--anonymous", "--data", "none", "--port", "0")

    done = pillarbox_process("serve", *words)

    assert done.returncode == 1
    assert "can't listen on nowhere.invalid:0: " in done.stderr
    assert "Unknown error" not in done.stderr


def test_R22_a_path_that_cannot_be_used_is_reported_with_its_reason(tmp_path: Path) -> None:
    fill(tmp_path / "data")
    (tmp_path / "file").touch()

    sent = pillarbox("send", f"file:{tmp_path}/file/data/orders", "tea")
    copied = pillarbox("backup", f"file:{tmp_path}/data", tmp_path / "file" / "copy")

    assert (sent.returncode, copied.returncode) == (1, 1)
    assert f"the store {tmp_path}/file/data can't be used: Not a directory" in sent.stderr
    assert copied.stderr == f"pillarbox: {tmp_path}/file/copy.partial/log: Not a directory\n"


@pytest.mark.parametrize(
    ("option", "value", "wanted"),
    [
        ("--from", "bogus", "option --from must be"),
        ("--to", "2026-13-01", "option --to must be"),
        ("--every", "bogus", "the interval must be a number and a unit"),
        ("--every", "0 minutes", "the interval must be a number and a unit"),
    ],
)
def test_R88_a_report_refuses_bad_options_before_spark_is_started(
    option: str, value: str, wanted: str, tmp_path: Path
) -> None:
    fill(tmp_path / "data")

    done = pillarbox("report", f"file:{tmp_path}/data", option, value)

    assert done.returncode == 1
    assert done.stderr.startswith(f"pillarbox: {wanted}")
    assert done.stderr.count("\n") == 1


def test_R2_a_body_that_the_encoding_of_stdout_lacks_is_escaped(tmp_path: Path) -> None:
    url = f"file:{tmp_path}/tea"
    pillarbox("send", url, "café ☕")

    done = pillarbox_process("receive", url, "--ack", PYTHONIOENCODING="ascii")
    logged = pillarbox_process("log", "cat", url, "--kind", "sent", PYTHONIOENCODING="ascii")

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith("  caf\\xe9 \\u2615\n")
    assert logged.stdout.endswith("  caf\\xe9 \\u2615\n")


def test_R2_an_empty_receive_says_so_and_where_the_messages_are(tmp_path: Path) -> None:
    url = f"file:{tmp_path}/tea"
    pillarbox("send", url, "later", "--delay", "600")

    received, peeked = pillarbox("receive", url), pillarbox("peek", url, "--state", "in_flight")

    assert (received.returncode, received.stdout) == (1, "")
    assert received.stderr == "No message in tea is ready (1 scheduled).\n"
    assert (peeked.returncode, peeked.stdout) == (0, "")
    assert peeked.stderr == "No message in tea is in flight (1 scheduled).\n"


def test_R36_what_is_waited_for_is_shown_on_a_terminal(tmp_path: Path) -> None:
    url = f"file:{tmp_path}/tea"
    pillarbox("queue", "create", url)

    quick, slow = on_a_terminal("receive", url), on_a_terminal("receive", url, "--wait", "2")

    assert "waiting for a message in tea" in slow
    assert "waiting for a message" not in quick
