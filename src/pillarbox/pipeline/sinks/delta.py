"""A sink that appends to a Delta table, whose log records the steps it contains.

Spark's tasks write Parquet files, and the driver commits them to the table's log together with the
number of the step; no jars are needed. Files of an interrupted step are in no log; Delta's vacuum
removes them. URLs that Pillarbox does not support are left to Delta Lake's jars.
"""

from __future__ import annotations

import os
import uuid
from typing import TYPE_CHECKING, Any

from pillarbox.pipeline.errors import PipelineError
from pillarbox.pipeline.sinks.files import Sink
from pillarbox.spark.files import files_at
from pillarbox.spark.location import location_of
from pillarbox.spark.remote_store import delta_options, options_of
from pillarbox.spark.steps import Step
from pillarbox.spark.table_files import addition, deltalake, write_parquet

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def delta(path: str | os.PathLike[str], **options: str) -> Sink:
    """Append each step to a Delta table, with options for Spark's writer.

    A directory or a remote store (`s3a://...`) needs `pip install 'pillarbox[delta]'`, any other
    URL a session with Delta Lake (`delta-spark` and its jars).
    """
    url = os.fspath(path)
    location = location_of(url)
    return _by_spark(url, options) if location is None else _by_files(location, options)


def _by_spark(url: str, options: dict[str, str]) -> Sink:
    def write(batch: DataFrame, step: Step) -> None:
        transaction = {"txnAppId": _writer(step), "txnVersion": str(step.number)}
        batch.write.format("delta").mode("append").options(**transaction, **options).save(url)

    return write


def _by_files(path: str, options: dict[str, str]) -> Sink:
    lake, files = deltalake(), files_at(path)
    storage = delta_options(options_of(path))

    def write(batch: DataFrame, step: Step) -> None:
        schema = lake.Schema.from_json(batch.schema.json())
        table = lake.DeltaTable.create(path, schema, mode="ignore", storage_options=storage)
        last_step = table.transaction_version(_writer(step))
        if last_step is not None and last_step >= step.number:
            return
        _check_columns(path, table.schema(), schema)
        folder = f"step-{step.number}-{uuid.uuid4().hex}"
        added = [addition(each, {}) for each in write_parquet(batch, files, folder, **options)]
        properties = lake.CommitProperties(
            app_transactions=[lake.Transaction(_writer(step), step.number)]
        )
        table.create_write_transaction(added, "append", schema, commit_properties=properties)
        files.sync_all("_delta_log")

    return write


def _check_columns(path: str, table: Any, batch: Any) -> None:
    """Raise if a column is not in the table's schema: its values would be silently lost."""
    columns = {field.name: field.type for field in table.fields}
    unknown = [field for field in batch.fields if columns.get(field.name) != field.type]
    if unknown:
        raise PipelineError(
            f"the table {path} has no column {unknown[0].name} of type {unknown[0].type.type}; it"
            f" has {', '.join(columns)}: leave it out, or add it to the table first"
        )


def _writer(step: Step) -> str:
    return f"{step.processor}@{step.generation}"
