"""R86: DataFrames into mailboxes, and mailboxes consumed as streams."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadMaxRows
from pyspark.sql.types import BinaryType, StructType

from pillarbox import Mailbox, open_mailbox
from pillarbox import spark as on_spark
from pillarbox.core.errors import MailboxStorageError
from pillarbox.log import Log
from pillarbox.spark.leased import LeasedReader, Staged, _encode
from pillarbox.spark.mailbox_sink import MailboxSink
from pillarbox.spark.options import ReadOptions
from pillarbox.testing.broker import running_broker
from pillarbox.testing.redis import shared_server
from tests.spark.support import contents, fill, numbered, to_the_end


def opened(url: str) -> Mailbox[dict[str, Any]]:
    """The mailbox; on disk once Spark's reader has let go of its store, soon after the query."""
    while True:
        try:
            return open_mailbox(url, dict)
        except MailboxStorageError as error:
            if "is open in " not in str(error):
                raise


def received(path: Path, name: str) -> list[Any]:
    found = []
    with opened(f"file:{path}/{name}") as box:
        while messages := box.receive(max_messages=1000):
            found.extend(messages)
            box.acknowledge_many(messages)
    return found


def test_R86_a_dataframe_is_sent_to_a_mailbox_with_its_options(spark: Any, tmp_path: Path) -> None:
    frame = spark.range(300).selectExpr(
        "to_json(struct(id as n)) as body",
        "map('shop', cast(id as string)) as attributes",
        "cast(id % 10 as int) as priority",
    )
    told: list[on_spark.Progress] = []
    on_spark.enqueue(frame, f"file:{tmp_path}/data/orders", progress=told.append)
    assert told[-1] == ("messages", 300, 300)
    found = received(tmp_path / "data", "orders")
    assert sorted(message.body["n"] for message in found) == list(range(300))
    assert all(message.attributes == {"shop": str(message.body["n"])} for message in found)
    assert all(message.priority == message.body["n"] % 10 for message in found)


def test_R86_a_batch_that_is_done_again_is_recognised(spark: Any, tmp_path: Path) -> None:
    open_mailbox(f"file:{tmp_path}/data/orders", dict).close()
    fill(tmp_path / "in", [*numbered(0, 50), b'{"n":7}'])  # one body twice: two messages

    def run() -> None:
        rows = spark.readStream.format("pillarbox").schema("body BINARY").load(str(tmp_path / "in"))
        query = rows.writeStream.format("pillarbox").option("processor", "send")
        query = query.option("checkpointLocation", str(tmp_path / "cp")).trigger(availableNow=True)
        to_the_end(lambda: query.start(f"file:{tmp_path}/data/orders"))

    run()
    for path in (tmp_path / "cp" / "commits").glob("*0*"):
        path.unlink()
    run()
    found = sorted(message.body["n"] for message in received(tmp_path / "data", "orders"))
    assert found == sorted([*range(50), 7])


def test_R86_a_mailbox_in_memory_is_refused() -> None:
    with pytest.raises(ValueError, match="exists only in this process"):
        MailboxSink("memory:orders", {}, ["body"], "p")


@pytest.fixture(params=["a file", "a broker", "redis"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "a file":
        yield f"file:{tmp_path}/data/orders"
    elif request.param == "redis":
        yield f"{shared_server().url}/0/leased-orders"
    else:
        with running_broker(str(tmp_path / "data"), "os") as server:
            yield f"{server}/orders"


def test_R86_a_mailbox_is_consumed_as_a_stream_and_acknowledged(
    url: str, spark: Any, tmp_path: Path
) -> None:
    def send(start: int, stop: int) -> None:
        with opened(url) as box:
            for number in range(start, stop):
                box.send({"n": number}, attributes={"a": str(number)})

    def run() -> None:
        rows = spark.readStream.format("pillarbox").option("maxRowsPerTrigger", 20)
        rows = rows.option("stagingPath", str(tmp_path / "staged"))
        frame = rows.load(url).selectExpr("body", "id", "attributes")
        query = frame.selectExpr("body").writeStream.format("pillarbox")
        query = query.option("processor", "eat").option("checkpointLocation", str(tmp_path / "cp"))
        query = query.trigger(availableNow=True)
        to_the_end(lambda: query.start(str(tmp_path / "out")))

    send(0, 50)
    run()
    assert sorted(contents(tmp_path / "out")) == sorted(numbered(0, 50))
    send(50, 60)
    run()
    assert sorted(contents(tmp_path / "out")) == sorted(numbered(0, 60))
    with opened(url) as box:
        assert (box.approximate_count(), box.receive()) == (0, [])


def test_R86_what_a_dead_driver_had_staged_is_not_staged_again(tmp_path: Path) -> None:
    """It died after it had staged the messages and before it had acknowledged them."""
    options = ReadOptions.of({"path": f"memory:{tmp_path.name}"})
    schema = StructType().add("body", BinaryType())

    with open_mailbox(options.url, bytes) as box:
        box.send_many(numbered(0, 30))
        found = box.receive(max_messages=30)
        with Log.open(tmp_path / "staged") as log:
            log.append_many([_encode(Staged.of(message)) for message in found])
        for message in found:
            message.nack()
        reader = LeasedReader(options, str(tmp_path / "staged"), schema)
        start = reader.initialOffset()
        end = reader.latestOffset(start, ReadMaxRows(100))
        parts = reader.partitions(start, end)
        bodies = [b for part in parts for batch in reader.read(part) for b in batch[0].to_pylist()]
        reader.commit(end)
        reader.stop()
        assert bodies == numbered(0, 30)
        assert box.approximate_count() == 0  # acknowledged by the one that came after
