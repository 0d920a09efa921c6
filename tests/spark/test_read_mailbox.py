"""R74, R86: the history of a mailbox is a DataFrame, with every event and what it was about."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pillarbox import DurableMailbox, open_mailbox
from pillarbox.core import journal
from tests.spark.support import contents


def load(spark: Any, url: str, **options: Any) -> Any:
    return spark.read.format("pillarbox").options(**options).load(url)


def test_R110_reading_the_history_of_a_mailbox_changes_no_byte(spark: Any, tmp_path: Path) -> None:
    path = tmp_path / "data"
    with DurableMailbox("orders", str, path=path) as orders:
        orders.send_many(["a", "b", "c"])
        orders.receive(visibility_timeout=0.001)
    before = {each: each.read_bytes() for each in path.rglob("*") if each.is_file()}
    assert load(spark, f"file:{path}/orders").where("kind = 'sent'").count() == 3
    assert load(spark, f"file:{path}/orders", start="latest").count() == 0
    assert {each: each.read_bytes() for each in path.rglob("*") if each.is_file()} == before


def test_R74_the_columns_tell_what_happened_to_which_message(spark: Any, tmp_path: Path) -> None:
    with (
        DurableMailbox("orders", dict, path=tmp_path / "data") as orders,
        DurableMailbox("other", str, path=tmp_path / "data") as other,
    ):
        sent = [
            orders.send({"n": n}, priority=n, attributes={"shop": str(n)} if n % 2 else None)
            for n in range(6)
        ]
        other.send("nothing to do with it")
        taken = orders.receive(max_messages=2)
        taken[0].acknowledge()
        # The store is open here: the history is read beside it.
        rows = load(spark, f"file:{tmp_path}/data/orders").orderBy("index").collect()
        new = [row for row in rows if row.kind == "sent"]
        assert [row.id for row in new] == sent
        assert [row.priority for row in new] == list(range(6))
        assert [row.attributes for row in new] == [
            {"shop": str(n)} if n % 2 else None for n in range(6)
        ]
        assert bytes(new[3].body) == b'{"n":3}'
        assert {row.queue for row in rows} == {"orders"}
        assert [row.id for row in rows if row.kind == "leased"] == [each.id for each in taken]
        (done,) = [row for row in rows if row.kind == "acknowledged"]
        assert (done.id, done.body) == (taken[0].id, None)
        assert new[0].enqueued_at <= new[0].time
        assert new[5].enqueued_at == done.enqueued_at


def test_R86_queue_and_kind_as_filters_and_as_options(spark: Any, tmp_path: Path) -> None:
    for name, count in (("a", 3), ("b", 4)):
        with open_mailbox(f"file:{tmp_path}/data/{name}", int) as box:
            box.send_many(range(count))
            for message in box.receive(max_messages=2):
                message.acknowledge()
    whole = load(spark, f"file:{tmp_path}/data")
    assert whole.where("queue = 'a' and kind = 'sent'").count() == 3
    assert whole.where("queue in ('a', 'b') and kind in ('sent', 'leased')").count() == 11
    assert whole.where("kind = 'sent' and index > 1000").count() == 0
    assert load(spark, f"file:{tmp_path}/data/b", kinds="leased,acknowledged").count() == 4


def test_R74_what_the_columns_say_is_what_the_journal_says(spark: Any, tmp_path: Path) -> None:
    with DurableMailbox("orders", str, path=tmp_path / "data") as box:
        for number in range(300):
            box.send(
                f"{number}" * (number % 5),
                priority=number % 256,
                attributes={"a": "b" * (number % 3)} if number % 3 else None,
                delay_seconds=60 if number % 7 == 0 else 0,
            )
        for message in box.receive(max_messages=50):
            message.nack()
    entries = [journal.decode(record) for record in contents(tmp_path / "data" / "log")]
    schema = "index BIGINT, kind STRING, priority INT, body BINARY, details STRING"
    frame = spark.read.format("pillarbox").schema(schema).load(f"file:{tmp_path}/data")
    rows = frame.orderBy("index").collect()
    assert [row.kind for row in rows] == [journal.KINDS[entry.kind] for entry in entries]
    new = (journal.SENT, journal.SCHEDULED)
    bodies = [entry.body if entry.kind in new else None for entry in entries]
    assert [row.body if row.body is None else bytes(row.body) for row in rows] == bodies
    priorities = [entry.priority if entry.kind in new else None for entry in entries]
    assert [row.priority for row in rows] == priorities
    assert entries[0].kind == journal.IDENTITY
    assert rows[0].details is None  # there is the secret that receipt handles are made with
    silent = [entry.details is None for entry in entries]
    assert [row.details is None for row in rows[1:]] == silent[1:]
