"""R74, R86: histories that are read from elsewhere: over HTTP, from Redis, from PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows
from pyspark.sql.types import (
    BinaryType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructType,
    TimestampType,
)

from pillarbox import DurableMailbox, open_mailbox
from pillarbox import spark as on_spark
from pillarbox.broker import Config
from pillarbox.broker.config import Key
from pillarbox.core.errors import MailboxError
from pillarbox.mailbox.broker import AccessDeniedError
from pillarbox.mailbox.durable_store import DurableStore
from pillarbox.spark.errors import DataLossError
from pillarbox.spark.options import ReadOptions
from pillarbox.spark.readers import BatchReader, StreamReader, open_history, position
from pillarbox.testing.broker import running_broker
from tests.spark.support import contents, numbered, to_the_end

TYPES = {
    "index": LongType(),
    "id": StringType(),
    "body": BinaryType(),
    "attributes": MapType(StringType(), StringType()),
    "priority": IntegerType(),
    "enqueued_at": TimestampType(),
    "kind": StringType(),
    "queue": StringType(),
    "time": TimestampType(),
    "details": StringType(),
}
KEYS = (
    Key("all", "secret-of-all"),
    Key("orders", "secret-of-orders", queues=("orders",), actions=("receive",)),
    Key("sender", "secret-of-sender", queues=("orders",), actions=("send",)),
)


def with_key(url: str, key: Key) -> str:
    return url.replace("://", f"://{key.id}:{key.secret}@")


def schema(*names: str) -> StructType:
    """Made without Spark: there is no JVM in most of these tests."""
    built = StructType()
    for name in names:
        built = built.add(name, TYPES[name])
    return built


def rows(url: str, **options: str) -> list[dict[str, Any]]:
    """What a batch read gives, part by part, as tasks would read it."""
    reader = BatchReader(ReadOptions.of({"path": url, **options}), schema(*TYPES))
    batches = (batch for part in reader.partitions() for batch in reader.read(part))
    return [row for batch in batches for row in batch.to_pylist()]


def stream_of(url: str, **options: str) -> StreamReader:
    return StreamReader(ReadOptions.of({"path": url, **options}), schema("index"))


def indices(reader: StreamReader, start: dict[str, int], end: dict[str, int]) -> list[int]:
    parts = reader.partitions(start, end)
    return [n for part in parts for batch in reader.read(part) for n in batch.column(0).to_pylist()]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[str]:
    """A broker with keys and a history: `orders` has 500 messages, `other` has 300."""
    with running_broker(str(tmp_path / "data"), "os", Config(port=0, keys=KEYS)) as url:
        whole = with_key(url, KEYS[0])
        with (
            open_mailbox(f"{whole}/orders", dict) as orders,
            open_mailbox(f"{whole}/other", dict) as other,
        ):
            for start in range(0, 500, 100):
                orders.send_many(
                    [{"n": n} for n in range(start, start + 100)], priority=start // 100
                )
                other.send_many([{"x": n} for n in range(60)])
            for message in orders.receive(max_messages=5):
                message.acknowledge()
        yield url


def test_R86_a_brokers_history_is_read_over_http_with_its_permissions(broker: str) -> None:
    url = with_key(broker, KEYS[1])
    found = rows(f"{url}/orders", minPartitions="3")
    sent = [row for row in found if row["kind"] == "sent"]
    assert [row["body"] for row in sent] == numbered(0, 500)
    assert [row["priority"] for row in sent] == [n // 100 for n in range(500)]
    assert {row["queue"] for row in found} == {"orders"}
    assert [row["kind"] for row in found].count("acknowledged") == 5
    assert len({row["id"] for row in sent}) == 500
    assert [row["index"] for row in found] == sorted(row["index"] for row in found)
    assert len(rows(f"{url}/orders", kinds="leased,acknowledged")) == 10
    for key, path in ((KEYS[1], "other"), (KEYS[1], ""), (KEYS[2], "orders")):
        with pytest.raises(AccessDeniedError):
            rows(f"{with_key(broker, key)}/{path}")
    everything = rows(f"{with_key(broker, KEYS[0])}/", kinds="sent,identity")
    assert len(everything) == 800
    assert {row["kind"] for row in everything} == {"sent"}  # the store's secret stays with it
    with pytest.raises(Exception, match="no queue 'nothing'"):
        rows(f"{with_key(broker, KEYS[0])}/nothing")


def test_R86_what_is_read_over_http_is_what_is_on_disk(broker: str, tmp_path: Path) -> None:
    remote = rows(f"{with_key(broker, KEYS[0])}/orders")
    assert remote == rows(f"file:{tmp_path}/data/orders")


def test_R86_a_stream_over_http_has_limits_positions_and_tells_of_losses(
    broker: str, tmp_path: Path
) -> None:
    url = f"{with_key(broker, KEYS[0])}/orders"
    reader = stream_of(url)
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())
    whole = indices(reader, start, end)
    seen: list[int] = []
    limits = (ReadMaxRows(100), ReadMaxBytes(5_000), ReadAllAvailable())
    at = start
    for limit in limits:
        following = reader.latestOffset(at, limit)
        assert following["index"] > at["index"]
        seen += indices(reader, at, following)
        at = following
    assert seen == whole
    assert reader.reportLatestOffset() == end
    reader.prepareForTriggerAvailableNow()
    with open_mailbox(url, dict) as box:
        box.send({"n": -1})
    assert reader.latestOffset(start, ReadAllAvailable()) == end  # what came later is for later
    history = open_history(url)
    assert position(history, "start", "latest") == history.end > end["index"]
    assert position(history, "start", "2020-01-01") == history.first
    assert position(history, "start", "2999-01-01") == history.end


def test_R86_retention_at_a_broker_is_an_error_unless_it_may_be(tmp_path: Path) -> None:
    where = {"path": tmp_path / "data", "segment_bytes": 16_384}  # so that there are several
    with DurableMailbox("orders", bytes, **where) as box:
        for _ in range(5):
            box.send_many([b"x" * 100] * 100)
    with running_broker(str(tmp_path / "data"), "os") as url:
        store = url.broker.store
        assert isinstance(store, DurableStore)
        reader = stream_of(f"{url}/orders")
        lenient = stream_of(f"{url}/orders", failOnDataLoss="false")
        start = reader.initialOffset()
        stop = reader.latestOffset(start, ReadAllAvailable())
        parts = reader.partitions(start, stop)
        with open_mailbox(f"{url}/orders", bytes) as sender:
            sender.purge()
        store.compactor.compact()
        first = store.log.first_index
        assert first > start["index"]
        with pytest.raises(DataLossError, match="failOnDataLoss"):
            reader.latestOffset(start, ReadAllAvailable())
        with pytest.raises(DataLossError, match="retention removed"):  # a task that comes too late
            list(reader.read(parts[0]))
        assert lenient.latestOffset(start, ReadAllAvailable())["index"] >= first


def test_R86_a_broker_in_memory_says_that_it_keeps_no_history() -> None:
    with running_broker() as url:
        open_mailbox(f"{url}/orders", bytes).close()
        with pytest.raises(MailboxError, match="keeps its queues in memory"):
            open_history(f"{url}/orders")


def test_R86_messages_go_into_a_broker_and_its_history_into_a_log(
    spark: Any, broker: str, tmp_path: Path
) -> None:
    """Sent by the tasks, once though they are sent twice; then read back over HTTP."""
    url = f"{with_key(broker, KEYS[0])}/orders"
    frame = spark.range(500, 600, 1, 2).selectExpr(
        "to_json(struct(id as n)) as body", "7 as priority"
    )
    told: list[on_spark.Progress] = []
    for _ in range(2):
        on_spark.enqueue(frame, url, progress=told.append, processor="fill")
        assert told[-1] == ("tasks", 2, 2)
    stream = spark.readStream.format("pillarbox").schema("body BINARY, kind STRING, priority INT")
    stream = stream.option("maxRowsPerTrigger", 900).load(url).where("kind = 'sent'")
    query = stream.select("body").writeStream.format("pillarbox").option("processor", "copy")
    query = query.option("checkpointLocation", str(tmp_path / "cp")).trigger(availableNow=True)
    ended = to_the_end(lambda: query.start(str(tmp_path / "out")))
    assert sorted(contents(tmp_path / "out")) == sorted(numbered(0, 600))
    assert len([each for each in ended.recentProgress if each["numInputRows"]]) > 1
