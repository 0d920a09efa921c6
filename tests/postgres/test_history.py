"""R74: the history of a queue, read by offset."""

from __future__ import annotations

import psycopg
import pytest

from pillarbox import DeadLetterPolicy, InvalidParameterError, PostgresMailbox
from pillarbox.mailbox.postgres import history
from pillarbox.mailbox.postgres.errors import RefusedError


def test_R74_what_happens_is_in_the_history_in_order(url: str) -> None:
    policy = DeadLetterPolicy(2)
    with PostgresMailbox("orders", str, url=url, history=True, dead_letters=policy) as box:
        box.send("a", attributes={"colour": "red"}, priority=3)
        box.receive()[0].nack()
        (message,) = box.receive()
        message.extend_visibility(60)
        message.release()
        box.receive()[0].reject("no good")
        box.send_many(["b", "c"])
        (message,) = box.receive()
        message.acknowledge()
        box.delete([box.peek()[0].id])
        box.send("d", delay_seconds=60)
        box.purge()
    events = history.read(f"{url}/orders")
    assert [event.kind for event in events] == [
        "sent", "leased", "returned", "leased", "extended", "released", "leased", "died",
        "sent", "sent", "leased", "acknowledged", "removed", "scheduled", "purged",
    ]  # fmt: skip
    assert (events[0].body, events[0].attributes) == (b"a", {"colour": "red"})
    assert events[0].details["priority"] == 3
    assert events[-1].message_id == ""


def test_R74_a_reader_goes_on_from_an_offset_and_misses_no_late_commit(url: str) -> None:
    with (
        PostgresMailbox("orders", str, url=url, history=True) as box,
        psycopg.connect(url) as connection,
    ):
        box.send("first")
        box.send("late", connection=connection)
        box.send("early")
        seen = history.read(f"{url}/orders")
        assert [event.body for event in seen] == [b"first"]  # no further than who still runs
        connection.commit()
        more = history.read(f"{url}/orders", after=seen[-1].offset)
        assert {event.body for event in more} == {b"late", b"early"}
        assert history.read(f"{url}/orders", after=more[-1].offset) == []
        assert history.trim(f"{url}/orders", before=more[-1].offset) == 2
        assert len(history.read(f"{url}/orders")) == 1


def test_R74_without_the_option_nothing_is_kept(url: str) -> None:
    with PostgresMailbox("orders", str, url=url) as box:
        box.send("a")
    assert history.read(f"{url}/orders") == []
    with pytest.raises(InvalidParameterError, match="offset"):
        history.read(f"{url}/orders", after="now")


def test_R74_a_transaction_with_too_many_events_is_refused(url: str) -> None:
    with (
        PostgresMailbox("orders", str, url=url, history=True) as box,
        psycopg.connect(url) as connection,
    ):
        box.send("first", connection=connection)
        connection.execute("UPDATE pillarbox.events SET index = index + (1 << 20) - 1")
        with pytest.raises(RefusedError, match="commit more often"):
            box.send("one more", connection=connection)
        connection.rollback()
        box.send("after", connection=connection)
        connection.commit()
    assert [event.body for event in history.read(f"{url}/orders")] == [b"after"]
