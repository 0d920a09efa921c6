"""R140: a call that is cancelled, or whose connection is lost, is done as a whole or not at all."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import psycopg
import pytest

from pillarbox import MailboxConnectionError, Message, PostgresMailbox, UnknownOutcomeError
from pillarbox.mailbox.postgres import RefusedError
from tests.interrupts import held_after_late_undo
from tests.postgres.test_faults import end_blocked, locked

BODIES = [str(number) for number in range(20)]
Verb = Callable[[PostgresMailbox[str], Sequence[Message[str]]], Any]
VERBS: dict[str, Verb] = {
    "send": lambda box, held: box.send_many(BODIES),
    "receive": lambda box, held: box.receive(max_messages=10),
    "acknowledge": lambda box, held: box.acknowledge_many(held),
    "nack": lambda box, held: box.nack_many(held),
    "extend": lambda box, held: box.extend_visibility_many(held, 500),
    "purge": lambda box, held: box.purge(),
}
some_verb = pytest.mark.parametrize("verb", VERBS.values(), ids=VERBS.keys())


def counts(box: PostgresMailbox[str]) -> tuple[int, int]:
    stats = box.stats()
    return stats.ready, stats.in_flight


def filled(box: PostgresMailbox[str]) -> Sequence[Message[str]]:
    """Twenty messages, of which ten are held."""
    box.send_many(BODIES)
    return box.receive(max_messages=10)


@some_verb
def test_R140_a_cancelled_call_changes_nothing(url: str, verb: Verb) -> None:
    with PostgresMailbox("orders", str, url=url) as box:
        held = filled(box)
        canceller = threading.Thread(target=end_blocked, args=(url, "cancel"))
        with locked(url):
            canceller.start()
            with pytest.raises(RefusedError, match="cancelled"):
                verb(box, held)
            canceller.join()
        assert counts(box) == (10, 10)
        assert all(box.acknowledge_many(held))


@some_verb
def test_R140_a_call_whose_connection_is_lost_is_done_as_a_whole_or_not_at_all(
    url: str, verb: Verb
) -> None:
    done = {
        "send": (30, 10), "receive": (0, 20), "acknowledge": (10, 0), "nack": (20, 0),
        "extend": (10, 10), "purge": (0, 0),
    }  # fmt: skip
    name = next(name for name, each in VERBS.items() if each is verb)
    with PostgresMailbox("orders", str, url=url) as box:
        held = filled(box)
        with locked(url) as holder:

            def interrupt() -> None:
                end_blocked(url, "terminate")
                holder.rollback()

            thread = threading.Thread(target=interrupt)
            thread.start()
            with suppress(UnknownOutcomeError):
                verb(box, held)
            thread.join()
        expected = (
            {(10, 10), (0, 20)} if name == "receive" else {(10, 10), done.get(name, (10, 10))}
        )
        assert counts(box) in expected


@pytest.mark.parametrize("how", ["lost", "cancelled"])
def test_R140_a_transaction_whose_send_fails_is_rolled_back_as_a_whole(url: str, how: str) -> None:
    with PostgresMailbox("orders", str, url=url) as box:
        with psycopg.connect(url) as connection:
            connection.execute("CREATE TABLE orders (id int)")
        connection = psycopg.connect(url)
        connection.execute("INSERT INTO orders VALUES (1)")
        box.send("a", connection=connection)
        if how == "lost":
            pid = connection.info.backend_pid
            with psycopg.connect(url, autocommit=True) as other:
                other.execute("SELECT pg_terminate_backend(%s)", (pid,))
            with pytest.raises(MailboxConnectionError, match="rolled back"):
                box.send_many(["b", "c"], connection=connection)
        else:
            connection.execute("SET LOCAL statement_timeout = 300")
            with psycopg.connect(url) as other:
                other.execute("SELECT pillarbox.lock_groups(%s, '{g}')", (box._verbs.queue_id,))
                with pytest.raises(RefusedError, match="cancelled"):
                    box.send_many(["b", "c"], group="g", connection=connection)
            with pytest.raises(psycopg.errors.InFailedSqlTransaction):
                connection.execute("INSERT INTO orders VALUES (2)")
        connection.close()
        with psycopg.connect(url) as other:
            assert other.execute("SELECT count(*) FROM orders").fetchone() == (0,)
        assert counts(box) == (0, 0)


def test_R13_a_claim_that_is_undone_late_ends_no_lease_of_another(url: str) -> None:
    with (
        PostgresMailbox("orders", str, url=url) as box,
        PostgresMailbox("orders", str, url=url) as other,
    ):
        assert held_after_late_undo(box, other).acknowledge()
