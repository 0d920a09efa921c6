"""A sink into a Delta table, which knows by itself which steps it has seen.

A directory needs no more than a wheel: Spark's tasks write Parquet files, and the driver enters
them into the table's log, together with the number of the step. What an interrupted step left
behind is in no log; Delta's own vacuum removes it. A URL is left to Spark with Delta Lake.
"""

from __future__ import annotations

import json
import os
import uuid
from typing import TYPE_CHECKING, Any

from pillarbox.extras import extra
from pillarbox.pipeline.errors import PipelineError
from pillarbox.pipeline.sinks.files import Sink
from pillarbox.pipeline.step import Step
from pillarbox.spark.place import local_directory
from pillarbox.spark.table import deltalake
from pillarbox.spark.table_files import sync, sync_all

with extra("spark", "a sink into Delta tables"):
    from pyarrow import parquet

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def delta(path: str | os.PathLike[str], **options: str) -> Sink:
    """Append each step to a Delta table; options are those of Spark's writer.

    A directory needs `pip install 'pillarbox[delta]'`, a URL such as `s3a://...` a session with
    Delta Lake (`delta-spark` and its jars).
    """
    place = os.fspath(path)
    if "://" in place and not place.startswith("file:"):
        return _by_spark(place, options)
    return _by_files(local_directory(place), options)


def _by_spark(url: str, options: dict[str, str]) -> Sink:
    def write(batch: DataFrame, step: Step) -> None:
        known = {"txnAppId": _writer(step), "txnVersion": str(step.number)}
        batch.write.format("delta").mode("append").options(**known, **options).save(url)

    return write


def _by_files(path: str, options: dict[str, str]) -> Sink:
    lake = deltalake()

    def write(batch: DataFrame, step: Step) -> None:
        schema = lake.Schema.from_json(batch.schema.json())
        table = lake.DeltaTable.create(path, schema, mode="ignore")
        seen = table.transaction_version(_writer(step))
        if seen is not None and seen >= step.number:
            return
        _check_columns(path, table.schema(), schema)
        part = f"step-{step.number}-{uuid.uuid4().hex}"
        batch.write.format("parquet").options(**options).save(f"file:{path}/{part}")
        sync_all(f"{path}/{part}")
        sync(path)
        entered = lake.CommitProperties(
            app_transactions=[lake.Transaction(_writer(step), step.number)]
        )
        added = _additions(path, part)
        table.create_write_transaction(added, "append", schema, commit_properties=entered)
        sync_all(f"{path}/_delta_log")

    return write


def _check_columns(path: str, table: Any, batch: Any) -> None:
    """A table shows only what its schema knows: any other column would be lost in silence."""
    known = {field.name: field.type for field in table.fields}
    odd = [field for field in batch.fields if known.get(field.name) != field.type]
    if odd:
        raise PipelineError(
            f"the table {path} has no column {odd[0].name} of type {odd[0].type.type}; it has"
            f" {', '.join(known)}: leave it out, or add it to the table first"
        )


def _additions(path: str, part: str) -> list[Any]:
    """What the table has to know of the files of one step."""
    from deltalake.transaction import AddAction  # noqa: PLC0415 - behind an extra

    found = []
    for name in sorted(os.listdir(f"{path}/{part}")):
        if name.endswith(".parquet"):
            file = f"{path}/{part}/{name}"
            count = parquet.read_metadata(file).num_rows
            known = os.stat(file)
            time, stats = known.st_mtime_ns // 1_000_000, json.dumps({"numRecords": count})
            found.append(AddAction(f"{part}/{name}", known.st_size, {}, time, True, stats))
    return found


def _writer(step: Step) -> str:
    return f"{step.processor}@{step.generation}"
