"""What tasks hand to the driver, tried on the writers themselves: no JVM is started."""

from __future__ import annotations

import hashlib
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from pyspark import TaskContext, cloudpickle

from pillarbox import open_mailbox
from pillarbox.log import Log
from pillarbox.log.frame import EncodedRecords, encode_records
from pillarbox.spark.errors import FencedError, OptionError
from pillarbox.spark.mailbox_sink import MailboxSink, MailboxStreamWriter
from pillarbox.spark.sink import RUN, LogBatchWriter, TaskOutput, encoded_records, plain_records
from tests.spark.support import contents

ROWS = 350


@pytest.fixture
def as_task(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Let what follows be done by a task of this run."""

    def become(run: str) -> None:
        context = SimpleNamespace(
            getLocalProperty=lambda name: run if name == RUN else None,
            partitionId=lambda: 0,
        )
        monkeypatch.setattr(TaskContext, "get", lambda: context)

    return become


def batches(rows: int) -> Iterator[Any]:
    for start in range(0, rows, 100):
        numbers = range(start, min(start + 100, rows))
        yield pa.RecordBatch.from_pydict({"body": [b"%01000d" % n for n in numbers]})


def sent(message: Any) -> Any:
    """As the driver gets it."""
    return cloudpickle.loads(cloudpickle.dumps(message))


def write_named(target: Path, step: str) -> LogBatchWriter:
    options = {"path": f"file:{target}", "processor": "totals", "step": step}
    return LogBatchWriter(options, ["body"])


def test_R82_a_fenced_run_writes_nothing_and_harms_nothing(
    tmp_path: Path, as_task: Callable[[str], None]
) -> None:
    target = tmp_path / "out"
    as_task("run 1")
    first = write_named(target, "first")
    first.commit([sent(first.write(batches(0)))])
    earlier = write_named(target, "second")
    from_earlier = sent(earlier.write(batches(ROWS)))
    as_task("run 2")
    later = write_named(target, "third")
    from_later = sent(later.write(batches(ROWS)))
    later.commit([from_later])
    with pytest.raises(FencedError):
        earlier.commit([from_earlier])
    earlier.abort([from_earlier, None])
    later.commit([from_later])
    assert contents(target) == [b"%01000d" % n for n in range(ROWS)]


def test_R82_control_without_epochs_the_earlier_run_writes_as_well(
    tmp_path: Path, as_task: Callable[[str], None]
) -> None:
    target = tmp_path / "out"
    for run in ("run 1", "run 2"):
        as_task(run)
        writer = LogBatchWriter({"path": f"file:{target}"}, ["body"])
        writer.commit([sent(writer.write(batches(ROWS)))])
    assert len(contents(target)) == 2 * ROWS


def test_R82_an_aborted_write_leaves_the_log_as_it_was(
    tmp_path: Path, as_task: Callable[[str], None]
) -> None:
    as_task("run 1")
    writer = LogBatchWriter({"path": f"file:{tmp_path}/out"}, ["body"])
    before = sorted(path.name for path in (tmp_path / "out").iterdir())
    writer.abort([sent(writer.write(batches(ROWS))), None])
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == before
    with Log.open(tmp_path / "out", readonly=True) as log:
        assert log.end_index == 0


def test_R82_a_row_without_a_body_is_refused(
    tmp_path: Path, as_task: Callable[[str], None]
) -> None:
    as_task("run 1")
    writer = LogBatchWriter({"path": f"file:{tmp_path}/out"}, ["body"])
    with pytest.raises(OptionError, match="without a body"):
        writer.write(iter([pa.RecordBatch.from_pydict({"body": [b"x", None]})]))


def test_R82_the_driver_sends_the_rows_for_a_mailbox_on_disk(
    tmp_path: Path, as_task: Callable[[str], None]
) -> None:
    url = f"file:{tmp_path}/orders"
    writers = [MailboxStreamWriter(url, {"processor": "totals"}, ["body"]) for _ in range(2)]
    told = []
    for number, writer in enumerate(writers):
        as_task(f"run {number}")
        told.append(sent(writer.write(batches(ROWS))))
    writers[0].abort([told[0], None], 0)
    writers[1].commit([told[1], None], 0)
    with open_mailbox(url, bytes) as box:
        assert box.approximate_count() == ROWS


def rows_of(rows: int) -> Iterator[Any]:
    sink = MailboxSink("http://127.0.0.1:9324/orders", {}, ["body"], "totals")
    return sink._rows(batches(rows), "totals/0/0")


def kept_bytes(rows: int) -> int:
    """What the ids of so many rows keep in memory when the rows themselves are gone."""
    tracemalloc.start()
    try:
        generator = rows_of(rows + 1)
        for _ in range(rows):
            next(generator)
        return tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()


def test_R86_the_ids_of_a_partition_keep_digests_and_no_bodies() -> None:
    few, many = kept_bytes(1_000), kept_bytes(11_000)
    assert (many - few) / 10_000 < 300, "bytes kept for each row of a kilobyte"


def test_R86_equal_rows_have_ids_of_their_own_as_ever() -> None:
    sink = MailboxSink("http://127.0.0.1:9324/orders", {}, ["body"], "totals")
    batch = pa.RecordBatch.from_pydict({"body": [b"tea", b"tea", b"milk"]})
    found = [row.options["deduplication_id"] for row in sink._rows(iter([batch]), "totals/0/0")]
    encode = msgspec.msgpack.Encoder(order="deterministic").encode
    expected = [
        hashlib.sha256(encode(("totals/0/0", body, {})) + number).hexdigest()
        for body, number in ((b"tea", b"1"), (b"tea", b"2"), (b"milk", b"1"))
    ]
    assert found == expected


@pytest.mark.parametrize("bodies", [[b""], [b"", b""], [b"x"], [b"abc", b"", b"d" * 9]])
def test_R82_records_are_encoded_from_arrow_as_they_are_from_python(bodies: list[bytes]) -> None:
    """Also of several tasks, and of slices."""
    array = pa.array([b"before", *bodies, b"after"], pa.binary()).slice(1, len(bodies))
    outputs = [TaskOutput([array, array]), TaskOutput([array])]
    expected = list(plain_records(outputs))
    assert expected == bodies * 3
    found = encoded_records(outputs)
    assert isinstance(found, EncodedRecords)
    assert (found.payload, found.data_bytes) == encode_records(expected)
    assert len(found) == len(expected)
    assert encoded_records([]) == encoded_records([TaskOutput([array[:0]])]) == []
