"""Sinks into files. A step is one directory, named by its hash, that appears whole or not at all.

The directory is `hash=...`, so Spark and others read the whole as one table with a column
`hash`. What begins with `_` they pass over: a step under way, or what a crash left of one.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from typing import TYPE_CHECKING

from pillarbox.pipeline.step import Step
from pillarbox.spark.table_files import sync, sync_all

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Sink = Callable[["DataFrame", Step], None]


def parquet(path: str | os.PathLike[str], **options: str) -> Sink:
    """Write each step as Parquet files below `path`; options are Spark's."""
    return _files(os.path.abspath(path), "parquet", options)


def json_lines(path: str | os.PathLike[str], **options: str) -> Sink:
    """Write each step as files of JSON lines below `path`; options are Spark's."""
    return _files(os.path.abspath(path), "json", options)


def _files(path: str, kind: str, options: dict[str, str]) -> Sink:
    def write(batch: DataFrame, step: Step) -> None:
        final = f"{path}/hash={step.hash}"
        if os.path.exists(final):
            return
        temporary = f"{path}/_writing-{step.hash}"
        batch.write.format(kind).mode("overwrite").options(**options).save(f"file:{temporary}")
        sync_all(temporary)
        os.rename(temporary, final)
        sync(path)
        for name in os.listdir(path):
            if name.startswith("_writing-"):  # of a step that was given up for another
                shutil.rmtree(f"{path}/{name}", ignore_errors=True)

    return write
