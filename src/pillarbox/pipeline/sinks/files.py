"""Sinks into files. A step is one directory, named by its hash, that appears whole or not at all.

The directory is `hash=...`, so Spark and others read the whole as one table with a column
`hash`. What begins with `_` they pass over: a step under way, or what a crash left of one.
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
    """Write each step as Parquet files below `path`; options are Spark's."""
    return _files(path, "parquet", options)


def json_lines(path: str | os.PathLike[str], **options: str) -> Sink:
    """Write each step as files of JSON lines below `path`; options are Spark's."""
    return _files(path, "json", options)


def _files(place: str | os.PathLike[str], kind: str, options: dict[str, str]) -> Sink:
    path = local_directory(os.fspath(place))
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
            if name.startswith("_writing-"):  # of a step that was given up for another
                shutil.rmtree(f"{path}/{name}", ignore_errors=True)

    return write
