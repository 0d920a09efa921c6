"""`format("pillarbox")`: the data source for Spark.

`register` registers it with a session; Spark also finds it by itself, through `pyspark_pillarbox`.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)

from pillarbox.spark.columns import MAILBOX_SCHEMA, with_body
from pillarbox.spark.errors import OptionError
from pillarbox.spark.leased import LeasedReader
from pillarbox.spark.location import local_directory, location_of, mailbox_url
from pillarbox.spark.mailbox_sink import MailboxBatchWriter, MailboxStreamWriter
from pillarbox.spark.options import ReadOptions
from pillarbox.spark.readers import BatchReader, StreamReader, schema_of
from pillarbox.spark.sink import LogBatchWriter, LogStreamWriter


class PillarboxSource(DataSource):
    """Reads and writes logs and mailboxes."""

    @classmethod
    def name(cls) -> str:
        return "pillarbox"

    def schema(self) -> str:
        staged = "stagingPath" in self.options
        read = None if staged else ReadOptions.of(self.options)
        schema = MAILBOX_SCHEMA if read is None else schema_of(read.url, read.storage)
        body = self.options.get("schema")
        return schema if body is None else with_body(schema, body)

    def reader(self, schema: Any) -> DataSourceReader:
        return BatchReader(self._read_options(), schema)

    def streamReader(self, schema: Any) -> DataSourceStreamReader:
        staging = self.options.get("stagingPath")
        if staging is not None:
            return LeasedReader(ReadOptions.of(self.options), local_directory(staging), schema)
        return StreamReader(self._read_options(), schema)

    def writer(self, schema: Any, overwrite: bool) -> DataSourceWriter:
        _refuse_overwrite(overwrite)
        url, columns = self._mailbox(), schema.fieldNames()
        if url is not None:
            return MailboxBatchWriter(url, self.options, columns)
        return LogBatchWriter(self.options, columns)

    def streamWriter(self, schema: Any, overwrite: bool) -> DataSourceStreamWriter:
        _refuse_overwrite(overwrite)
        url, columns = self._mailbox(), schema.fieldNames()
        if url is not None:
            return MailboxStreamWriter(url, self.options, columns)
        return LogStreamWriter(self.options, columns)

    def _mailbox(self) -> str | None:
        """Return the URL of the mailbox to write to; None if the target is a log."""
        url, wanted = self.options.get("path"), self.options.get("target")
        if wanted not in (None, "log", "mailbox"):
            raise OptionError(f"option target must be log or mailbox; got {wanted!r}")
        if not url or wanted == "log":
            return None
        return mailbox_url(url, wanted=wanted == "mailbox")

    def _read_options(self) -> ReadOptions:
        url = self.options.get("path")
        if url:
            self.options["path"] = location_of(url) or url
        return ReadOptions.of(self.options)


def _refuse_overwrite(overwrite: bool) -> None:
    if overwrite:
        raise OptionError("records can only be appended to a log; write with mode('append')")
