"""R140: receivers that wait are notified, nobody else is, and behind a pooler they poll."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import psycopg
import pytest

from pillarbox import PostgresMailbox
from pillarbox.mailbox.postgres import listener, low_water
from pillarbox.mailbox.postgres.listener import POLL_SECONDS
from pillarbox.testing.postgres import shared_server
from pillarbox.testing.redis import until
from tests.postgres.pooler import pooler
from tests.postgres.waiting import until_parked

FD_SETSIZE = 1_024  # what `select` can't go beyond
PARKED = (
    "SELECT DISTINCT pid FROM pg_locks WHERE locktype = 'advisory' AND classid = 1885500417 "
    "AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
)


@pytest.fixture
def pool() -> Any:
    with ThreadPoolExecutor(8) as pool:
        yield pool


def receive(box: Any, seconds: float = 20) -> list[str]:
    return [message.body for message in box.receive(wait_time_seconds=seconds)]


def heard(connection: Any) -> list[str]:
    return [each.payload for each in connection.notifies(timeout=0.05)]


def test_R140_nobody_is_notified_while_nobody_waits(url: str, pool: Any) -> None:
    with (
        PostgresMailbox("orders", str, url=url) as box,
        psycopg.connect(url, autocommit=True) as spy,
    ):
        spy.execute("LISTEN pillarbox")
        box.send_many(["a", "b"])
        assert heard(spy) == []
        assert box.receive()[0].acknowledge()
        assert box.receive()[0].nack()
        assert box.receive()[0].acknowledge()
        parked = pool.submit(receive, box)
        until_parked(box)
        assert heard(spy) == []
        box.send("c")
        assert parked.result(10) == ["c"]
        assert len(heard(spy)) == 1


@pytest.fixture
def many_files() -> Iterator[None]:
    """This process has so many files open that a new one has a high number."""
    with ExitStack() as stack:
        for _ in range(FD_SETSIZE):
            stack.enter_context(open(os.devnull))
        yield


@pytest.mark.usefixtures("many_files")
def test_R140_a_process_with_many_open_files_can_send_and_wait(url: str, pool: Any) -> None:
    with PostgresMailbox("orders", str, url=url) as box:
        parked = pool.submit(receive, box)
        until_parked(box)
        box.send("a")
        assert parked.result(10) == ["a"]
        box.send("b")  # over a connection that was used before
        assert receive(box) == ["b"]


def test_R140_one_connection_listens_for_all_receivers_of_a_process(url: str, pool: Any) -> None:
    with (
        PostgresMailbox("orders", str, url=url) as box,
        PostgresMailbox("orders", str, url=url) as same,
        PostgresMailbox("letters", str, url=url) as other,
        psycopg.connect(url, autocommit=True) as connection,
    ):
        parked = [pool.submit(receive, each) for each in (box, same, other)]
        until_parked(box, 2)
        until_parked(other)
        assert len(connection.execute(PARKED).fetchall()) == 1
        box.send_many(["a", "b"])
        other.send("c")
        assert sorted(body for each in parked for body in each.result(10)) == ["a", "b", "c"]


def test_R140_a_queue_is_left_when_nobody_waits_any_more(url: str) -> None:
    with (
        PostgresMailbox("orders", str, url=url) as box,
        psycopg.connect(url, autocommit=True) as connection,
    ):
        assert receive(box, 0.1) == []
        until(lambda: connection.execute(PARKED).fetchall() == [], "nobody is parked", 20)


def test_R140_a_queue_where_nobody_had_to_wait_is_left_at_once(
    url: str, pool: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until then all senders have to notify it. Control: one that waited stays for a while."""
    monkeypatch.setattr(listener, "_LINGER_SECONDS", 1_000)
    with (
        PostgresMailbox("orders", str, url=url) as box,
        psycopg.connect(url, autocommit=True) as connection,
    ):
        box.send("a")
        box._connection._listening().enter(box._verbs.queue_id)
        assert len(connection.execute(PARKED).fetchall()) == 1
        until(lambda: connection.execute(PARKED).fetchall() == [], "nobody is parked", 20)
        assert receive(box) == ["a"]
        assert receive(box, 0.1) == []
        time.sleep(10 * listener._LINGER_UNUSED_SECONDS)
        assert len(connection.execute(PARKED).fetchall()) == 1


def test_R140_a_message_below_the_mark_is_found_without_parking(url: str) -> None:
    """It was committed after a later one was received."""
    with PostgresMailbox("orders", str, url=url) as box:
        with psycopg.connect(url) as connection:
            box.send("late", connection=connection)
            box.send("early")
            assert receive(box) == ["early"]
        known = box._verbs.low_water
        known._took = 0.0  # a look at everything is quick, but not due for long
        known._whole_at += 1_000
        assert not known.start().whole
        assert receive(box) == ["late"]
        assert box._connection._listener is None


def test_R140_a_sender_that_missed_the_receiver_is_not_missed(url: str, pool: Any) -> None:
    """It looked for parked receivers before there were any, and commits after they looked."""
    with PostgresMailbox("orders", str, url=url) as box:
        with psycopg.connect(url) as connection:
            box.send("late", connection=connection)
            parked = pool.submit(receive, box)
            until_parked(box)
        assert parked.result(5) == ["late"]


def test_R140_control_without_the_lock_of_senders_the_message_waits_for_the_next_look(
    url: str, pool: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(low_water, "_QUICK_SECONDS", 10)  # whoever parks looks at everything
    with PostgresMailbox("orders", str, url=url) as box:
        with psycopg.connect(url, autocommit=True) as connection:
            text = connection.execute(
                "SELECT pg_get_functiondef('pillarbox.is_awaited'::regproc)"
            ).fetchone()
            assert text is not None
            broken = text[0].replace("pg_try_advisory_xact_lock_shared(1885500418, queue_)", "true")
            assert broken != text[0]
            connection.execute(broken)
        with psycopg.connect(url) as connection:
            box.send("late", connection=connection)
            parked = pool.submit(receive, box)
            until_parked(box)
            time.sleep(0.2)  # its look at everything is over
        with pytest.raises(TimeoutError):
            parked.result(1.5)


def test_R140_a_listener_that_lost_its_connection_listens_again(url: str, pool: Any) -> None:
    with PostgresMailbox("orders", str, url=url) as box:
        parked = pool.submit(receive, box)
        until_parked(box)
        with psycopg.connect(url, autocommit=True) as connection:
            ((pid,),) = connection.execute(PARKED).fetchall()
            connection.execute("SELECT pg_terminate_backend(%s)", (pid,))
            until(
                lambda: connection.execute(PARKED).fetchall() not in ([], [(pid,)]),
                "another connection listens",
            )
        until_parked(box)
        box.send("a")
        assert parked.result(10) == ["a"]


def test_R140_behind_a_pooler_receivers_poll_and_nothing_is_prepared(url: str, pool: Any) -> None:
    server = shared_server()
    with pooler(server.port) as port:
        behind = url.replace(f":{server.port}/", f":{port}/")
        with (
            PostgresMailbox("orders", str, url=behind) as box,
            psycopg.connect(url, autocommit=True) as connection,
        ):
            parked = pool.submit(receive, box)
            with PostgresMailbox("orders", str, url=url) as sender:
                for _ in range(5):
                    sender.send("a")
            assert parked.result(POLL_SECONDS + 5) == ["a"]
            assert connection.execute(PARKED).fetchall() == []
            for _ in range(4):
                assert box.receive()[0].acknowledge()
            idle = box._connection._idle[0].connection
            assert idle.execute("SELECT count(*) FROM pg_prepared_statements").fetchone() == (0,)
