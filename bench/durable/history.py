"""Reading a log's whole history: into Arrow arrays, and record by record through a tailer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

from bench.durable.place import work_directory
from bench.harness import Contender, Race, Run, Sized, Versus
from pillarbox import Log

RECORDS = 5_000_000
RECORDS_ALONE = 500_000
RECORD = b"a record of a hundred and some bytes ".ljust(200, b".")
BATCH = 1_000

Read = Callable[[Log], int]


def _by_arrow(log: Log) -> int:
    return sum(batch.num_rows for batch in log.read_arrow())


def _by_tailer(log: Log) -> int:
    rows = 0
    for _ in log.tailer():
        rows += 1
    return rows


@contextmanager
def _reading(read: Read, records: int, batch: int) -> Iterator[Run]:
    with work_directory() as path, Log.open(path / "log", durability="os") as log:
        for start in range(0, records, batch):
            log.append_many([RECORD] * min(batch, records - start))

        def run(operations: int) -> None:
            assert read(log) == operations

        yield run


def arrow(sized: Sized) -> Race:
    many, alone = sized(RECORDS), sized(RECORDS_ALONE)

    def contender(name: str, read: Read, count: int, batch: int, *versus: Versus) -> Contender:
        return Contender(name, partial(_reading, read, count, batch), count, versus)

    return Race(
        f"reading {many:,} records of 200 bytes, written {BATCH:,} at a time",
        (
            contender("Arrow", _by_arrow, many, BATCH, Versus("tailer", speed_at_least=10)),
            contender("tailer", _by_tailer, many, BATCH),
            contender("Arrow, written alone", _by_arrow, alone, 1, Versus("tailer, written alone")),
            contender("tailer, written alone", _by_tailer, alone, 1),
        ),
    )
