"""R140: whatever is wrong with the server or the connection is a clear error, nothing half done."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

import psycopg
import pytest

from pillarbox import (
    InvalidParameterError,
    MailboxConnectionError,
    PostgresMailbox,
    UnknownOutcomeError,
    open_mailbox,
)
from pillarbox.cli import run
from pillarbox.codec import codec_for
from pillarbox.mailbox.answers import new_reply_queue
from pillarbox.mailbox.postgres import (
    RefusedError,
    SchemaMissingError,
    delete_queue,
    list_queues,
    options,
)
from pillarbox.mailbox.postgres.options import parse_url
from pillarbox.mailbox.postgres.schema import VERSION, initialise
from pillarbox.mailbox.postgres.verbs import PostgresVerbs
from pillarbox.testing.postgres import UNSAFE, PostgresServer, directory
from pillarbox.testing.redis import until

BLOCKED = "SELECT pid FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = %s"


def test_R21_a_reply_is_not_dropped_because_the_server_can_not_be_reached() -> None:
    verbs: PostgresVerbs[str] = PostgresVerbs(new_reply_queue("questions"), "", codec_for(str), 99)
    reply = verbs.answer("id", "yes")
    next(reply)
    with pytest.raises(MailboxConnectionError):
        reply.throw(MailboxConnectionError("lost"))


def test_R36_an_error_about_a_url_shows_no_password(url: str) -> None:
    user, _, rest = url.removeprefix("postgresql://").rpartition("@")
    named = f"postgresql://{user.partition(':')[0] or 'postgres'}:secret@{rest}"
    PostgresMailbox("any", url=url).close()
    for verb, wrong in (
        (delete_queue, f"{named}/nothing"),
        (delete_queue, named),
        (open_mailbox, "postgresql://me:secret@host"),
    ):
        with pytest.raises(InvalidParameterError) as refused:
            verb(wrong)
        assert "secret" not in str(refused.value)


@contextmanager
def locked(url: str) -> Iterator[Any]:
    """Whoever sends meanwhile waits."""
    with psycopg.connect(url) as connection:
        connection.execute("LOCK TABLE pillarbox.messages")
        yield connection
        connection.rollback()


def blocked(url: str) -> list[int]:
    with psycopg.connect(url, autocommit=True) as connection:
        rows = connection.execute(BLOCKED, (url.rpartition("/")[2],)).fetchall()
        return [row[0] for row in rows]


def end_blocked(url: str, how: Literal["cancel", "terminate"]) -> None:
    """Cancel the statement that waits for a lock, or end its connection."""
    until(lambda: bool(blocked(url)), "a statement waits for a lock")
    with psycopg.connect(url, autocommit=True) as connection:
        for pid in blocked(url):
            connection.execute(f"SELECT pg_{how}_backend(%s)", (pid,))


@pytest.mark.parametrize(
    ("old", "new"), [("postgres@", "nobody-knows-me@"), ("/test_", "/missing_")]
)
def test_R140_a_role_or_database_that_is_missing_is_told_at_once(
    url: str, old: str, new: str
) -> None:
    with pytest.raises(MailboxConnectionError, match="check the role"):
        open_mailbox(f"{url.replace(old, new)}/orders", str)


def test_R140_a_server_that_is_down_is_told() -> None:
    with pytest.raises(MailboxConnectionError, match="check that the server is running"):
        open_mailbox("postgresql://postgres@127.0.0.1:1/postgres/orders", retry_seconds=0.1)


@pytest.mark.parametrize("wrong", ["postgresql://host", "postgresql://host/a/b/c", "postgres:x"])
def test_R140_a_url_of_another_form_is_refused(wrong: str) -> None:
    with pytest.raises(InvalidParameterError, match="postgresql://user@host/database/name"):
        open_mailbox(wrong, str)


def test_R140_a_role_without_rights_is_told_what_to_do(url: str) -> None:
    role = "guest_" + url.rpartition("_")[2]
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"CREATE ROLE {role} LOGIN")
    theirs = f"{url.replace('postgres@', role + '@')}/orders"
    with pytest.raises(RefusedError, match="pillarbox postgres init"):
        open_mailbox(theirs, str)
    initialise(parse_url(url)[0])
    with pytest.raises(RefusedError, match="--grant"):
        open_mailbox(theirs, str)
    assert run(["postgres", "init", url, "--grant", role]) == 0
    with open_mailbox(theirs, str) as box:
        box.send("a")
        assert box.receive()[0].acknowledge()


def test_R140_the_schema_is_made_once_by_many(url: str) -> None:
    conninfo = parse_url(url)[0]
    found: list[tuple[int, int]] = []
    threads = [
        threading.Thread(target=lambda: found.append(initialise(conninfo))) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    assert initialise(conninfo) == (VERSION, VERSION)


def test_R140_an_older_schema_that_the_role_may_not_migrate_is_told(url: str) -> None:
    role = f"app_{os.urandom(4).hex()}"
    initialise(parse_url(url)[0])
    with psycopg.connect(url) as connection:
        connection.execute(f"CREATE ROLE {role} LOGIN")
    assert run(["postgres", "init", url, "--grant", role]) == 0
    with psycopg.connect(url) as connection:
        connection.execute("UPDATE pillarbox.schema_version SET version = version - 1")
    with pytest.raises(RefusedError, match="pillarbox postgres init"):
        open_mailbox(f"{url.replace('postgres@', role + '@')}/orders", str)


def test_R140_a_newer_schema_is_refused(url: str) -> None:
    conninfo = parse_url(url)[0]
    initialise(conninfo)
    with psycopg.connect(url) as connection:
        connection.execute("UPDATE pillarbox.schema_version SET version = 1000")
    with pytest.raises(SchemaMissingError, match="upgrade Pillarbox"):
        initialise(conninfo)


def test_R140_an_old_server_is_refused(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(options, "SERVER_VERSION_MIN", 990000)
    with pytest.raises(MailboxConnectionError, match="needs 99 or newer"):
        open_mailbox(f"{url}/orders", str)


def test_R140_a_server_that_takes_no_writes_is_told(url: str) -> None:
    with PostgresMailbox("orders", str, url=url):
        pass
    with psycopg.connect(url, autocommit=True) as connection:
        name = url.rpartition("/")[2]
        connection.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    with pytest.raises(MailboxConnectionError, match="refuses writes"):
        PostgresMailbox("others", str, url=url, retry_seconds=0.2)


def test_R140_a_cancelled_statement_changes_nothing(url: str) -> None:
    slow = f"{url}?options=-c%20statement_timeout%3D200"
    with PostgresMailbox("orders", str, url=slow) as box:
        with locked(url), pytest.raises(RefusedError, match="cancelled"):
            box.send_many(["a", "b"])
        assert box.stats().total == 0
        box.send("a")  # the connection goes on


def test_R140_a_connection_lost_during_a_batch_says_that_its_outcome_is_unknown(url: str) -> None:
    with PostgresMailbox("orders", str, url=url) as box:
        killer = threading.Thread(target=end_blocked, args=(url, "terminate"))
        with locked(url):
            killer.start()
            with pytest.raises(UnknownOutcomeError, match="deduplication_id"):
                box.send_many([str(n) for n in range(100)])
            killer.join()
        assert box.stats().total in (0, 100)  # all of it or nothing
        box.send("a")


def test_R140_a_send_with_a_deduplication_id_is_repeated_by_itself(url: str) -> None:
    with PostgresMailbox("orders", str, url=url) as box:
        with locked(url) as holder:

            def free() -> None:
                end_blocked(url, "terminate")
                holder.rollback()

            killer = threading.Thread(target=free)
            killer.start()
            box.send("a", deduplication_id="order-1")
            killer.join()
        assert box.stats().total == 1


def test_R140_a_restart_of_the_server_is_survived() -> None:
    with directory() as path:
        server = PostgresServer(path, UNSAFE | {"synchronous_commit": "on"})
        server.create()
        server.start()
        try:
            with PostgresMailbox("orders", str, url=server.url) as box:
                box.send("a")
                (message,) = box.receive()
                server.stop()
                starter = threading.Thread(target=server.start)
                starter.start()
                assert message.acknowledge()
                box.send("b")
                starter.join()
                assert [m.body for m in box.receive()] == ["b"]
        finally:
            server.kill()


def test_R140_a_queue_that_was_deleted_is_created_again_by_who_uses_it(url: str) -> None:
    with PostgresMailbox("orders", str, url=url) as box:
        box.send("a")
        assert list_queues(url) == [f"{url}/orders"]
        delete_queue(f"{url}/orders")
        assert list_queues(url) == []
        with pytest.raises(InvalidParameterError, match="an existing queue"):
            delete_queue(f"{url}/orders")
        box.send("b")
        assert [m.body for m in box.receive(max_messages=2)] == ["b"]


def test_R140_a_child_process_has_connections_of_its_own(url: str) -> None:
    with PostgresMailbox("orders", str, url=url) as box:
        box.send("a")
        child = os.fork()
        if child == 0:
            try:
                box.send("b")
            finally:
                os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        assert [m.body for m in box.receive(max_messages=2)] == ["a", "b"]
