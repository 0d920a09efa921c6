"""R140: the outbox. What commits is sent, what does not is not, whenever the relay is killed."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psycopg
import pytest

from pillarbox import InvalidParameterError, MailboxStorageError, PostgresMailbox, open_mailbox
from pillarbox.cli import run
from pillarbox.extras import MissingExtraError
from pillarbox.mailbox.broker import AccessDeniedError
from pillarbox.mailbox.postgres.listener import listener_for
from pillarbox.mailbox.postgres.options import parse_url
from pillarbox.mailbox.postgres.outbox import AsyncOutbox, Outbox
from pillarbox.mailbox.postgres.relay import Relay
from pillarbox.mailbox.redis.errors import RefusedError
from pillarbox.testing.broker import running_broker
from pillarbox.testing.redis import shared_server as redis_server
from pillarbox.testing.redis import until

STEPS = ["before-send", "after-send", "before-delete", "after-delete"]
PROCESS = Path(__file__).with_name("relay_process.py")
COUNT = 6


class Undo(Exception):
    """Rolls a transaction back."""


@pytest.fixture
def target() -> Iterator[str]:
    """The URL of a mailbox elsewhere."""
    yield f"{redis_server().url}/orders"
    redis_server().ask("FLUSHALL")


@pytest.fixture
def database(url: str) -> str:
    """A database with the schema."""
    PostgresMailbox("any", url=url).close()
    return url


def bodies(target: str) -> list[str]:
    with open_mailbox(target, str) as box:
        return [message.body for message in box.receive(max_messages=100)]


def sessions(database: str) -> int:
    """How many other sessions there are. That of a killed process holds its locks until it ends."""
    with psycopg.connect(database) as connection:
        row = connection.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
            " AND backend_type = 'client backend' AND pid <> pg_backend_pid()"
        ).fetchone()
        assert row is not None
        return int(row[0])


def left(database: str) -> int:
    with psycopg.connect(database) as connection:
        row = connection.execute("SELECT count(*) FROM pillarbox.outbox").fetchone()
        assert row is not None
        return int(row[0])


def test_R140_what_commits_is_sent_and_what_does_not_is_not(database: str, target: str) -> None:
    with psycopg.connect(database) as connection:
        Outbox(connection, target, str).send_many(["a", "b"], group="g")
    with suppress(Undo), psycopg.connect(database) as connection:
        Outbox(connection, target, str).send("phantom")
        raise Undo
    relay = Relay(database)
    assert relay.run_once() == 2
    assert relay.run_once() == 0
    relay.close()
    assert bodies(target) == ["a", "b"]
    assert left(database) == 0


@pytest.mark.parametrize("name", ["orders", "orders.fifo"])
def test_R140_any_body_goes_to_a_standard_or_fifo_queue_of_sqs(database: str, name: str) -> None:
    sent = [b"text", b"\xff\x00 not text"]
    with running_broker() as broker:
        target = f"sqs+{broker}/{name}"
        with open_mailbox(target, bytes, create=True) as box:
            with psycopg.connect(database) as connection:
                Outbox(connection, target, bytes).send_many(sent)
            relay = Relay(database)
            assert relay.run_once() == 2
            assert relay.problems == {}
            relay.close()
            received = [m.body for _ in sent for m in box.receive(wait_time_seconds=1)]
            assert sorted(received) == sorted(sent)
    assert left(database) == 0


def test_R140_a_message_arrives_with_all_that_it_was_sent_with(database: str, target: str) -> None:
    with psycopg.connect(database) as connection:
        outbox = Outbox(connection, target, dict)
        options = {"attributes": {"colour": "red"}, "reply_to": "answers", "priority": 7}
        outbox.send({"n": 1}, group="g", deduplication_id="order-1", **options)  # type: ignore[arg-type]
        outbox.send({"n": 1}, deduplication_id="order-1")
    assert run(["outbox", "relay", database, "--once"]) == 0
    with open_mailbox(target, dict) as box:
        (message,) = box.receive(max_messages=10)
        assert message.body == {"n": 1}
        assert dict(message.attributes) == {"colour": "red"}
        assert (message.priority, message.group, message.reply_to) == (7, "g", "answers")


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("number", [1, COUNT])
def test_R140_a_relay_killed_at_any_step_loses_nothing_and_doubles_nothing(
    database: str, target: str, step: str, number: int
) -> None:
    with psycopg.connect(database) as connection:
        Outbox(connection, target, str).send_many([str(n) for n in range(COUNT)], group="g")
    number = 1 if "delete" in step else number
    command = [sys.executable, str(PROCESS), database, step, str(number)]
    assert subprocess.run(command, check=False, timeout=60).returncode == -9
    until(lambda: sessions(database) == 0, "the server has noticed that the process is gone")
    relay = Relay(database)
    relay.run_once()
    relay.close()
    assert bodies(target) == [str(n) for n in range(COUNT)]
    assert left(database) == 0


def test_R140_control_sending_after_the_commit_loses_what_a_crash_comes_before(
    database: str, target: str
) -> None:
    """Without an outbox the process may die between its commit and its send."""
    program = (
        "import os, signal, sys, psycopg\n"
        "with psycopg.connect(sys.argv[1]) as connection:\n"
        "    connection.execute('CREATE TABLE effects (body text)')\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
        "open_mailbox(sys.argv[2], str).send('a')\n"
    )
    command = [sys.executable, "-c", program, database, target]
    assert subprocess.run(command, check=False, timeout=60).returncode == -9
    with psycopg.connect(database) as connection:
        assert connection.execute("SELECT to_regclass('effects')").fetchone() != (None,)
    assert bodies(target) == []


def test_R140_a_running_relay_is_woken_by_a_commit(database: str, target: str) -> None:
    relay = Relay(database)
    thread = threading.Thread(target=relay.run)
    thread.start()
    try:
        with open_mailbox(target, str) as box, psycopg.connect(database) as connection:
            for body in ("a", "b"):
                Outbox(connection, target, str).send(body)
                connection.commit()
                assert [m.body for m in box.receive(wait_time_seconds=10)] == [body]
        until(lambda: left(database) == 0, "the outbox is empty")
    finally:
        relay.end()
        thread.join()


def sent_on_after_a_late_commit(database: str, target: str) -> bool:
    """Whether a message is sent on soon that a relay could not see when it began to wait."""
    relay = Relay(database)
    thread = threading.Thread(target=relay.run)
    listener = listener_for(parse_url(database)[0])
    with open_mailbox(target, str) as box, psycopg.connect(database) as connection:
        Outbox(connection, target, str).send("a")  # nobody waits yet, so nobody is notified
        thread.start()
        try:
            until(lambda: listener.parked(0) == 1, "the relay waits")
            connection.commit()
            return bool(box.receive(wait_time_seconds=5))
        finally:
            relay.end()
            thread.join()
            listener.release()


def test_R140_a_commit_that_was_under_way_when_the_relay_began_to_wait_is_noticed(
    database: str, target: str
) -> None:
    assert sent_on_after_a_late_commit(database, target)


def test_R140_control_a_relay_that_trusts_in_notifications_alone_is_late(
    database: str, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pillarbox.mailbox.postgres.relay._ALL_COMMITTED", "SELECT true")
    assert not sent_on_after_a_late_commit(database, target)


def test_R140_of_two_relays_one_works_at_a_mailbox(database: str, target: str) -> None:
    with psycopg.connect(database) as connection:
        Outbox(connection, target, str).send("a")
    with psycopg.connect(database) as other:
        other.execute("SELECT pg_advisory_lock(1885500422, hashtext(%s))", (target,))
        relay = Relay(database)
        assert relay.run_once() == 0
    assert relay.run_once() == 1
    relay.close()


def test_R140_a_message_that_is_refused_for_good_does_not_block_the_others(
    database: str, target: str
) -> None:
    with psycopg.connect(database) as connection:
        Outbox(connection, target, str).send_many(["a", "b"])
        connection.execute("UPDATE pillarbox.outbox SET priority = 999 WHERE body = 'a'")
    relay = Relay(database)
    assert relay.run_once() == 1
    relay.close()
    assert bodies(target) == ["b"]
    with psycopg.connect(database) as connection:
        rows = connection.execute("SELECT error FROM pillarbox.outbox").fetchall()
    assert "priority must be" in rows[0][0]


def test_R140_messages_wait_while_their_mailbox_can_not_be_opened(
    database: str, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or take messages: the relay lacks a right or an extra, or there is no such queue yet."""
    problems: dict[str, Exception] = {
        "file": MailboxStorageError("the store is open in process 1"),
        "rediss": RefusedError("orders", "NOPERM this user has no permissions"),
        "http": AccessDeniedError("no such key"),
        "https": InvalidParameterError("name", "orders", "a queue that exists"),
        "sqs": MissingExtraError("a mailbox on SQS needs boto3"),
    }
    with psycopg.connect(database) as connection:
        for scheme in problems:
            url = "file:nowhere/orders" if scheme == "file" else f"{scheme}://nowhere/orders"
            Outbox(connection, url, str).send("a")
        Outbox(connection, target, str).send("a")

    def open_if_possible(url: str, kind: type[bytes]) -> object:
        problem = problems.get(url.partition(":")[0])
        if problem is not None:
            raise problem
        return open_mailbox(url, kind)

    monkeypatch.setattr("pillarbox.mailbox.postgres.relay.open_mailbox", open_if_possible)
    relay = Relay(database)
    assert relay.run_once() == 1
    assert len(relay.problems) == len(problems)
    relay.close()
    assert bodies(target) == ["a"]
    with psycopg.connect(database) as connection:
        errors = connection.execute("SELECT error FROM pillarbox.outbox").fetchall()
    assert errors == [(None,)] * len(problems)


def test_R140_an_outbox_for_asyncio(database: str, target: str) -> None:
    async def main() -> None:
        async with await psycopg.AsyncConnection.connect(database) as connection:
            outbox = AsyncOutbox(connection, target, str)
            await outbox.send("a")
            assert len(set(await outbox.send_many(["b", "c"], priority=0))) == 2

    asyncio.run(main())
    assert run(["outbox", "relay", database, "--once"]) == 0
    assert bodies(target) == ["a", "b", "c"]


def test_R140_the_outbox_refuses_what_is_no_mailbox(database: str) -> None:
    with psycopg.connect(database) as connection:
        with pytest.raises(InvalidParameterError, match="url"):
            Outbox(connection, "gopher://orders")
        with pytest.raises(InvalidParameterError, match="priority"):
            Outbox(connection, "memory:orders").send("a", priority=256)


def relay_once(url: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    code = run(["outbox", "relay", url, "--once"])
    out, err = capsys.readouterr()
    return code, out, err


def test_R140_the_command_says_why_nothing_was_sent(
    url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = relay_once(url, capsys)
    assert (code, "run `pillarbox postgres init URL`" in err) == (1, True)
    code, _, err = relay_once(url.rpartition("/")[0] + "/nosuch", capsys)
    assert (code, "check the role, the password and the database" in err) == (1, True)
    code, _, err = relay_once("postgresql://postgres@127.0.0.1:1/shop", capsys)
    assert (code, "PostgreSQL is not available" in err) == (1, True)
    assert run(["outbox", "relay", url]) == 1  # it would never find any message there
    assert "run `pillarbox postgres init URL`" in capsys.readouterr().err


def test_R140_the_command_fails_if_a_mailbox_took_nothing(
    database: str, target: str, capsys: pytest.CaptureFixture[str]
) -> None:
    away = "redis://app:secret@127.0.0.1:1/orders?retry_seconds=0"
    with psycopg.connect(database) as connection:
        Outbox(connection, away, str).send("a")
        Outbox(connection, target, str).send("b")

    code, out, err = relay_once(database, capsys)

    assert (code, out) == (1, "1 sent\n")
    assert "redis://app@127.0.0.1:1/orders was left" in err
    assert "secret" not in err
    assert bodies(target) == ["b"]
    assert left(database) == 1
