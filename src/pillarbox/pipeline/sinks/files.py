"""Sinks that write files. Each step is one directory, named by its hash, and appears atomically.

The directories are named `hash=...`, so Spark and others read all of them as one table with a
column `hash`. They ignore names that begin with `_`: unfinished steps.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from typing import TYPE_CHECKING

from pillarbox.spark.local_files import LocalFiles
from pillarbox.spark.location import local_directory
from pillarbox.spark.steps import Step

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Sink = Callable[["DataFrame", Step], None]


def parquet(path: str | os.PathLike[str], **options: str) -> Sink:
    """Write each step as Parquet files below `path`, with options for Spark's writer."""
    return _files(path, "parquet", options)


def json_lines(path: str | os.PathLike[str], **options: str) -> Sink:
    """Write each step as JSON Lines files below `path`, with options for Spark's writer."""
    return _files(path, "json", options)


def _files(directory: str | os.PathLike[str], kind: str, options: dict[str, str]) -> Sink:
    path = local_directory(os.fspath(directory))
    files = LocalFiles(path)

    def write(batch: DataFrame, step: Step) -> None:
        final = f"{path}/hash={step.hash}"
        if os.path.exists(final):
            return
        temporary = f"{path}/_writing-{step.hash}"
        batch.write.format(kind).mode("overwrite").options(**options).save(f"file:{temporary}")
        files.sync_all(f"_writing-{step.hash}")
        os.rename(temporary, final)
        files.sync("")
        for name in os.listdir(path):
            if name.startswith("_writing-"):  # an abandoned step
                shutil.rmtree(f"{path}/{name}", ignore_errors=True)

    return write
