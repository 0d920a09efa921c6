"""R74, R86: the histories of queues on Redis and in PostgreSQL, read by index."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows

from pillarbox import Mailbox, PostgresMailbox, open_mailbox
from pillarbox.mailbox.postgres import delete_queue, schema
from pillarbox.mailbox.postgres import history as postgres_history
from pillarbox.mailbox.redis import history as redis_history
from pillarbox.spark.errors import DataLossError, OptionError
from pillarbox.spark.readers import StreamReader
from pillarbox.testing import postgres, redis
from tests.spark.support import contents, numbered, to_the_end
from tests.spark.test_remote import indices, rows, stream_of


class Kept:
    """The URL of a queue that can keep its history, and how it is asked to."""

    def __init__(self, url: str, option: str, history: Any) -> None:
        self.url = url
        self.option = option
        self.history = history

    def open(self, body_type: type[Any]) -> Mailbox[Any]:
        return open_mailbox(self.url, body_type, **{self.option: True})


@contextmanager
def streaming(url: str, **options: str) -> Iterator[StreamReader]:
    reader = stream_of(url, **options)
    try:
        yield reader
    finally:
        reader.stop()


@pytest.fixture
def database() -> str:
    return postgres.shared_server().database()


@pytest.fixture(params=["redis", "postgres"])
def kept(request: pytest.FixtureRequest) -> Kept:
    if request.param == "redis":
        url = f"{redis.shared_server().url}/0/orders-{secrets.token_hex(4)}"
        return Kept(url, "journal", redis_history)
    database = request.getfixturevalue("database")
    return Kept(f"{database}/orders", "history", postgres_history)


def test_R86_the_history_of_a_queue_is_read_from_its_events(kept: Kept) -> None:
    url = kept.url
    with pytest.raises(OptionError, match=f"{kept.option}=True"):
        rows(url)
    with kept.open(dict) as box:
        assert rows(url) == []
        box.send_many([{"n": n} for n in range(50)], attributes={"shop": "a"})
        box.send({"n": 50}, priority=9, delay_seconds=60)
        for message in box.receive(max_messages=3):
            message.acknowledge()
        found = rows(url, minPartitions="4")
    sent = [row for row in found if row["kind"] in ("sent", "scheduled")]
    assert [row["body"] for row in sent] == numbered(0, 51)
    assert [row["priority"] for row in sent] == [0] * 50 + [9]
    assert [row["attributes"] for row in sent] == [[("shop", "a")]] * 50 + [None]
    events = kept.history.read(url)
    assert [row["id"] for row in found] == [each.message_id for each in events]
    assert [row["kind"] for row in found] == [each.kind for each in events]
    assert [row["time"] for row in found] == [each.at for each in events]
    assert all(row["enqueued_at"] == row["time"] for row in sent)
    sent_at = {row["id"]: row["time"] for row in sent}
    assert all(row["enqueued_at"] == sent_at[row["id"]] for row in found)
    assert [row["index"] for row in found] == sorted({row["index"] for row in found})
    assert len(rows(url, kinds="leased")) == 3
    when = events[52].at  # on Redis, some of the same millisecond came before it
    assert rows(url, end=when.isoformat()) == [row for row in found if row["time"] < when]
    assert rows(url, start=when.isoformat()) == [row for row in found if row["time"] >= when]
    assert [row["body"] for row in rows(url, start=str(sent[40]["index"]), kinds="sent")] == (
        numbered(40, 50)
    )


def test_R86_a_stream_of_a_queue_has_limits_and_reports_losses(kept: Kept) -> None:
    with kept.open(bytes) as box, streaming(kept.url) as reader:
        box.send_many([b"x" * 100] * 100)
        start = reader.initialOffset()
        some = reader.latestOffset(start, ReadMaxRows(30))
        more = reader.latestOffset(some, ReadMaxBytes(3_000))
        end = reader.latestOffset(more, ReadAllAvailable())
        parts = [indices(reader, *pair) for pair in ((start, some), (some, more), (more, end))]
        assert [len(parts[0]), sum(map(len, parts))] == [30, 100]
        assert 1 <= len(parts[1]) < 70
        if kept.option == "journal":
            assert [start["seen"], some["seen"], end["seen"]] == [0, 30, 100]
        # What was read may go; what was not may not.
        events = kept.history.read(kept.url)
        kept.history.trim(kept.url, events[30].offset)
        assert reader.latestOffset(some, ReadAllAvailable()) == end
        kept.history.trim(kept.url, events[31].offset)
        with pytest.raises(DataLossError, match="failOnDataLoss"):
            reader.latestOffset(some, ReadAllAvailable())
        with streaming(kept.url, failOnDataLoss="false") as lenient:
            assert lenient.latestOffset(some, ReadAllAvailable()) == end
            assert len(indices(lenient, some, end)) == 69


def test_R86_what_is_trimmed_between_planning_and_reading_is_reported(kept: Kept) -> None:
    with kept.open(bytes) as box, streaming(kept.url) as reader:
        box.send_many([b"x"] * 100)
        start = reader.initialOffset()
        end = reader.latestOffset(start, ReadAllAvailable())
        parts = reader.partitions(start, end)
        assert sum(batch.num_rows for part in parts for batch in reader.read(part)) == 100
        kept.history.trim(kept.url, kept.history.read(kept.url)[40].offset)
        with pytest.raises(DataLossError, match="failOnDataLoss"):
            list(reader.read(parts[0]))
        with streaming(kept.url, failOnDataLoss="false") as lenient:
            assert sum(batch.num_rows for batch in lenient.read(parts[0])) < 100


def test_R86_spark_streams_the_history_of_a_queue(spark: Any, kept: Kept, tmp_path: Path) -> None:
    with kept.open(dict) as box:
        box.send_many([{"n": n} for n in range(40)])

        def run() -> None:
            stream = spark.readStream.format("pillarbox").schema("n INT, body BINARY, kind STRING")
            stream = stream.option("kinds", "sent").option("maxRowsPerTrigger", 30).load(kept.url)
            query = stream.where("n >= 10").select("body").writeStream.format("pillarbox")
            query = query.option("processor", "copy").trigger(availableNow=True)
            query = query.option("checkpointLocation", str(tmp_path / "cp"))
            to_the_end(lambda: query.start(str(tmp_path / "out")))

        run()
        assert contents(tmp_path / "out") == numbered(10, 40)
        box.send_many([{"n": n} for n in range(40, 50)])
        run()
        assert contents(tmp_path / "out") == numbered(10, 50)
    for path in (tmp_path / "cp" / "commits").glob("*0*"):
        path.unlink()  # as if the driver had been killed before it wrote them
    run()
    assert contents(tmp_path / "out") == numbered(10, 50)


# -- PostgreSQL: transactions ----------------------------------------------------------------------


def followed(database: str) -> list[bytes]:
    """What a stream reads while one transaction stays open, and after it was committed."""
    url, read = f"{database}/orders", []
    with (
        PostgresMailbox("orders", bytes, url=database, history=True) as box,
        psycopg.connect(database) as connection,
        streaming(url) as reader,
    ):
        offset = reader.initialOffset()

        def follow() -> None:
            nonlocal offset
            end = reader.latestOffset(offset, ReadAllAvailable())
            found = indices(reader, offset, end)
            bodies = {row["index"]: row["body"] for row in rows(url)}
            read.extend(bodies[index] for index in found)
            offset = end

        box.send(b"first")
        box.send(b"late", connection=connection)
        box.send(b"second")
        follow()
        connection.commit()
        box.send(b"third")
        follow()
    return read


def test_R86_a_stream_reads_what_an_open_transaction_commits_late(database: str) -> None:
    assert followed(database) == [b"first", b"late", b"second", b"third"]


def test_R86_control_a_reader_that_does_not_wait_for_open_transactions_loses(
    database: str,
) -> None:
    PostgresMailbox("orders", url=database).close()
    careless = schema.text("history").replace(
        "pg_snapshot_xmin(pg_current", "pg_snapshot_xmax(pg_current"
    )
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(careless)
    assert followed(database) == [b"first", b"second", b"third"]


def test_R86_a_queue_that_was_created_again_has_lost_its_history(database: str) -> None:
    url = f"{database}/orders"
    with PostgresMailbox("orders", bytes, url=database, history=True) as box:
        box.send(b"old")
    with streaming(url) as reader:
        end = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
        delete_queue(url)
        with PostgresMailbox("orders", bytes, url=database, history=True) as box:
            box.send(b"new")
        with pytest.raises(DataLossError):
            reader.latestOffset(end, ReadAllAvailable())
    assert [row["body"] for row in rows(url)] == [b"new"]


def test_R86_the_history_of_a_restored_database_goes_on_behind_its_events(database: str) -> None:
    """A dump that is restored elsewhere has events of transactions that are yet to come there."""
    url = f"{database}/orders"
    with PostgresMailbox("orders", bytes, url=database, history=True) as box:
        box.send(b"old")
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("UPDATE pillarbox.events SET index = index + (1000000::bigint << 20)")
    with PostgresMailbox("orders", bytes, url=database) as box:
        box.send(b"new")
        assert [row["body"] for row in rows(url)] == [b"old", b"new"]


def test_R86_an_older_schema_keeps_its_events(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"{database}/orders"
    with monkeypatch.context() as before:
        before.setattr(schema, "VERSION", 4)  # the first that was released
        before.setattr(schema, "_FUNCTIONS", ())
        schema.initialise(database)
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("INSERT INTO pillarbox.queues (name) VALUES ('orders')")
        for index, body in enumerate((b"a", b"b"), 1):
            connection.execute(
                "INSERT INTO pillarbox.events (index, at, message_id, queue, kind, fields, body)"
                " SELECT %s, 1, %s, id, 'sent', '{\"priority\": 3}', %s FROM pillarbox.queues",
                (index, index, body),
            )
    with PostgresMailbox("orders", bytes, url=database, history=True) as box:
        box.send(b"c")
    assert [row["body"] for row in rows(url)] == [b"a", b"b", b"c"]
    assert [row["priority"] for row in rows(url)] == [3, 3, 0]
