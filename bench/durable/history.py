"""Reading a log's whole history: into Arrow arrays, and record by record through a tailer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial

from bench.durable.place import work_directory
from bench.harness import Contender, Race, Run, Sized, Versus
from pillarbox import Log

RECORDS = 5_000_000
RECORDS_ALONE = 200_000
ROUNDS = 3  # each reads a gigabyte and makes millions of objects
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


class _Shared:
    """A log that is written for the first who reads it and removed by the last."""

    def __init__(self, records: int, batch: int, readers: int) -> None:
        self._records, self._batch, self._left = records, batch, readers
        self._stack = ExitStack()
        self._log: Log | None = None

    @contextmanager
    def read_by(self, read: Read) -> Iterator[Run]:
        if self._log is None:
            path = self._stack.enter_context(work_directory())
            self._log = self._stack.enter_context(Log.open(path / "log", durability="os"))
            for start in range(0, self._records, self._batch):
                count = min(self._batch, self._records - start)
                self._log.append_many([RECORD] * count)
        log = self._log

        def run(operations: int) -> None:
            assert read(log) == operations

        try:
            yield run
        finally:
            self._left -= 1
            if not self._left:
                self._stack.close()


def arrow(sized: Sized) -> Race:
    many, alone = sized(RECORDS), sized(RECORDS_ALONE)
    grouped, single = _Shared(many, BATCH, 2), _Shared(alone, 1, 2)

    def contender(name: str, log: _Shared, read: Read, count: int, *versus: Versus) -> Contender:
        return Contender(name, partial(log.read_by, read), count, versus)

    versus = Versus("tailer", speed_at_least=10)
    return Race(
        f"reading {many:,} records of 200 bytes, written {BATCH:,} at a time",
        (
            contender("Arrow", grouped, _by_arrow, many, versus),
            contender("tailer", grouped, _by_tailer, many),
            contender(
                "Arrow, written alone", single, _by_arrow, alone, Versus("tailer, written alone")
            ),
            contender("tailer, written alone", single, _by_tailer, alone),
        ),
        ROUNDS,
    )
