"""Consumes a mailbox as a stream: receive, stage durably, acknowledge.

Works with any mailbox, even without a history. The driver leases messages, appends them to a
staging log (option `stagingPath`), and acknowledges them once they are on disk. The stream reads
the staging log. If the driver dies before it acknowledges, the message is delivered again but
staged once, because its id is known. Records that Spark has processed are dropped from the log.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import closing
from datetime import datetime
from operator import attrgetter
from typing import Any

import msgspec
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from pillarbox.log import Log
from pillarbox.mailbox.message import Message
from pillarbox.mailbox.protocol import Mailbox
from pillarbox.mailbox.url import open_mailbox
from pillarbox.spark.columns import Columns, EventRows, Values
from pillarbox.spark.commits import open_to_commit
from pillarbox.spark.file_history import FileHistory, read_pieces
from pillarbox.spark.history import INDEX
from pillarbox.spark.options import ReadOptions
from pillarbox.spark.readers import Part, parts_of

ROWS_MAX = 10_000
LEASE_SECONDS = 60.0
_RECEIVE_MAX = 1_000
_IDS_MAX = 100_000  # ids of recently staged messages to remember


class Staged(msgspec.Struct, array_like=True):
    """A message in the staging log."""

    id: str
    body: bytes
    attributes: dict[str, str]
    priority: int
    enqueued_at: datetime

    @classmethod
    def of(cls, each: Message[bytes]) -> Staged:
        return cls(each.id, each.body, dict(each.attributes), each.priority, each.enqueued_at)


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Staged).decode


class LeasedReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Streams a mailbox. Offsets are indices of the staging log, which outlives the query."""

    def __init__(self, options: ReadOptions, staging: str, schema: Any) -> None:
        self._options, self._staging = options, staging
        self._columns = Columns(schema, mailbox=True)
        self._log: Log | None = None
        self._box: Mailbox[bytes] | None = None
        self._staged_ids: OrderedDict[str, None] = OrderedDict()
        self._left: int | None = None

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_log": None, "_box": None, "_staged_ids": OrderedDict()}

    # -- on the driver ---------------------------------------------------------------------

    def initialOffset(self) -> dict[str, int]:
        return {INDEX: self._open().first_index}

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        log = self._open()
        rows = limit.max_rows if isinstance(limit, ReadMaxRows) else ROWS_MAX
        while log.end_index - start[INDEX] < rows and self._left != 0:
            if not self._stage(rows - (log.end_index - start[INDEX])):
                break
        return {INDEX: min(log.end_index, start[INDEX] + rows)}

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self._options.max_rows or ROWS_MAX)

    def prepareForTriggerAvailableNow(self) -> None:
        self._open()
        assert self._box is not None
        self._left = self._box.approximate_count()

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        if start[INDEX] >= end[INDEX]:
            return []
        self._open()
        with closing(FileHistory(self._staging)) as history:
            return parts_of(history, start[INDEX], end[INDEX], self._options)

    def commit(self, end: dict[str, int]) -> None:
        self._open().truncate_before(end[INDEX])

    def stop(self) -> None:
        if self._box is not None:
            self._box.close()
        if self._log is not None:
            self._log.close()
        self._log = self._box = None

    def _open(self) -> Log:
        if self._log is None:
            self._log = open_to_commit(self._staging)
            oldest = max(self._log.first_index, self._log.end_index - _IDS_MAX)
            for frame in self._log.frames(oldest):
                self._staged_ids.update((_decode(record).id, None) for record in frame.records)
            self._box = open_mailbox(self._options.url, bytes)
        return self._log

    def _stage(self, count_max: int) -> bool:
        """Lease messages, stage them, then acknowledge them; return False if there are none."""
        assert self._log is not None
        assert self._box is not None
        count = min(count_max, _RECEIVE_MAX, self._left or _RECEIVE_MAX)
        messages = self._box.receive(max_messages=count, visibility_timeout=LEASE_SECONDS)
        if not messages:
            return False
        new = [each for each in messages if each.id not in self._staged_ids]
        self._log.append_many([_encode(Staged.of(each)) for each in new])
        self._staged_ids.update((each.id, None) for each in new)
        while len(self._staged_ids) > _IDS_MAX:
            self._staged_ids.popitem(last=False)
        self._box.acknowledge_many(messages)
        if self._left is not None:
            self._left = max(0, self._left - len(messages))
        return True

    # -- in tasks --------------------------------------------------------------------------

    def read(self, partition: InputPartition) -> Iterator[Any]:
        assert isinstance(partition, Part)
        for batch in read_pieces(self._staging, self._staging, partition.pieces):
            yield self._columns.shaped(_StagedRows(batch, self._options.url))


_VALUES: Values = {
    **{name: attrgetter(name) for name in ("id", "body", "priority", "enqueued_at")},
    "attributes": lambda each: list(each.attributes.items()),
    "kind": lambda each: "leased",
    "details": lambda each: None,
}


class _StagedRows(EventRows):
    """Staged messages as columns."""

    def __init__(self, batch: Any, url: str) -> None:
        staged = [_decode(record) for record in batch.column("record").to_pylist()]
        super().__init__(staged, url.rpartition("/")[2], _VALUES)
        self._batch = batch

    def column(self, name: str) -> Any:
        return self._batch.column(name) if name in ("index", "time") else super().column(name)
