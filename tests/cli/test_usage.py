"""A wrong command line: the message blames what was typed, and names the help to read."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.support import fill, on_a_terminal, pillarbox


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


def test_R36_a_queue_that_does_not_exist_is_no_error_of_usage(tmp_path: Path) -> None:
    fill(tmp_path)

    done = pillarbox("redrive", f"file:{tmp_path}/orders_dlq", "--to", "ordres")

    assert done.returncode == 1
    assert "--to must be the name of a queue that exists" in done.stderr


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
