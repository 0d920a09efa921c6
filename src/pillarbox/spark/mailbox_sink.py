"""Writes DataFrames to mailboxes, at least once, with deduplication ids.

The deduplication id of a row depends on the processor, the batch, the number of the task and the
content of the row, but not on its position: a retry may have the rows in another order. Tasks send
directly to mailboxes on a server. A store on disk is open in one process at a time, so the driver
sends the rows for it.
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from collections import Counter, defaultdict
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import msgspec
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from pillarbox.codec import codec_for
from pillarbox.mailbox.protocol import AsyncMailbox
from pillarbox.mailbox.url import open_async_mailbox
from pillarbox.spark.errors import OptionError
from pillarbox.spark.options import flag
from pillarbox.spark.sink import TaskOutput, plain_records
from pillarbox.spark.steps import query_id

_DIGEST_BYTES = 16
_CONCURRENT_SENDS = 1_000
_BATCH = "streaming.sql.batchId"
_FIELDS = ("attributes", "priority", "delay_seconds", "group", "deduplication_id")
_encode = msgspec.msgpack.Encoder(order="deterministic").encode


class Row(msgspec.Struct, array_like=True, omit_defaults=True):
    """A message to send."""

    body: bytes
    options: dict[str, Any]


_decode = msgspec.msgpack.Decoder(Row).decode


class MessageIds:
    """Deduplication ids for the messages of one task or step; the same if it is repeated.

    An id depends on the scope, the message and the number of equal messages before it, but not on
    its position.
    """

    def __init__(self, scope: str) -> None:
        self._scope = scope
        self._seen: Counter[bytes] = Counter()  # by digest, to save memory

    def next(self, row: Row) -> str:
        content = hashlib.sha256(_encode((self._scope, row.body, row.options)))
        digest = content.digest()[:_DIGEST_BYTES]
        self._seen[digest] += 1
        content.update(str(self._seen[digest]).encode())
        return content.hexdigest()


class MailboxSink:
    """Sends the rows of a DataFrame to one mailbox."""

    def __init__(
        self,
        url: str,
        options: Mapping[str, str],
        columns: Sequence[str],
        processor: str | None,
    ) -> None:
        if url.startswith("memory:"):
            raise OptionError(
                f"{url} exists only in this process, but Spark's tasks run in others; use a mailbox"
                " on disk or on a server"
            )
        if "body" not in columns:
            raise OptionError("a DataFrame needs a column body to be sent to a mailbox")
        self._url = url
        # Without a given processor, a unique one: no other write is a duplicate of this one.
        self.processor = processor or f"batch-{secrets.token_hex(8)}"
        self._columns = [name for name in _FIELDS if name in columns]
        self._deduplicate = flag(options, "deduplicate", True)
        self._by_driver = url.startswith("file:")
        self._progress = options.get("progressPath")

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        """Send the rows, or return them for the driver to send. Runs in a task."""
        context = TaskContext.get()
        assert context is not None
        batch = context.getLocalProperty(_BATCH) or ""
        rows = self._rows(iterator, f"{self.processor}/{batch}/{context.partitionId()}")
        if self._by_driver:
            encoded = (pa.array(map(_encode, some), pa.binary()) for some in _chunks(rows, 1000))
            return TaskOutput(encoded)
        send_rows(self._url, rows)
        return TaskOutput()

    def send(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Send the rows that the tasks have returned. Runs on the driver."""
        if self._by_driver:
            outputs = [each for each in messages if isinstance(each, TaskOutput)]
            total = sum(each.rows for each in outputs)
            rows = map(_decode, plain_records(outputs))
            send_rows(self._url, rows, lambda count: self._report(count, total))

    def _report(self, done: int, total: int) -> None:
        """Write the number of messages sent to the progress file, if there is one."""
        if self._progress is not None:
            with open(self._progress, "w", encoding="ascii") as file:
                file.write(f"{done} {total}")

    def _rows(self, batches: Iterator[Any], task: str) -> Iterator[Row]:
        ids = MessageIds(task)
        for batch in batches:
            bodies = batch.column("body").cast(pa.binary()).to_pylist()
            extras = [batch.column(name).to_pylist() for name in self._columns]
            for number, body in enumerate(bodies):
                if body is None:
                    raise OptionError("a row without a body can't be sent; filter such rows out")
                values = {
                    name: extra[number] for name, extra in zip(self._columns, extras, strict=True)
                }
                options = {name: value for name, value in values.items() if value is not None}
                if "attributes" in options:
                    options["attributes"] = dict(options["attributes"])
                row = Row(body, options)
                if self._deduplicate and "deduplication_id" not in options:
                    options["deduplication_id"] = ids.next(row)
                yield row


class MailboxStreamWriter(MailboxSink, DataSourceStreamArrowWriter):
    def __init__(self, url: str, options: Mapping[str, str], columns: Sequence[str]) -> None:
        processor = options.get("processor") or query_id(options.get("checkpointLocation", ""))
        super().__init__(url, options, columns, processor)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        self.send(messages)


class MailboxBatchWriter(MailboxSink, DataSourceArrowWriter):
    def __init__(self, url: str, options: Mapping[str, str], columns: Sequence[str]) -> None:
        super().__init__(url, options, columns, options.get("processor") or None)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        self.send(messages)


def send_rows(
    url: str,
    rows: Iterator[Row],
    report: Callable[[int], object] = lambda count: None,
    *,
    body_type: Any = bytes,
) -> None:
    """Send all rows, many concurrently; call `report` with the number sent so far."""

    async def send() -> None:
        count, decode = 0, codec_for(body_type).decode
        async with open_async_mailbox(url, body_type) as box:
            for chunk in _chunks(rows, _CONCURRENT_SENDS):
                await asyncio.gather(*_sends(box, chunk, decode))
                count += len(chunk)
                report(count)

    asyncio.run(send())


def _sends(
    box: AsyncMailbox[Any], rows: list[Row], decode: Callable[[bytes], Any]
) -> Iterator[Coroutine[Any, Any, Any]]:
    """Yield a send per row with a deduplication id; batch the others by equal options."""
    by_options: defaultdict[bytes, list[Row]] = defaultdict(list)
    for row in rows:
        if "deduplication_id" in row.options:
            yield box.send(decode(row.body), **row.options)
        else:
            by_options[_encode(row.options)].append(row)
    for batch in by_options.values():
        yield box.send_many([decode(row.body) for row in batch], **batch[0].options)


def _chunks(rows: Iterator[Row], size: int) -> Iterator[list[Row]]:
    while chunk := list(islice(rows, size)):
        yield chunk
