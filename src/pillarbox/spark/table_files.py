"""The files of a typed log: their rows as the table has them, and their way to the disk."""

from __future__ import annotations

import contextlib
import os
from typing import Any


def conformed(rows: Any, schema: Any) -> Any:
    """Rows of a file as a table has them: older files lack columns, Spark's times are finer."""
    import pyarrow as pa  # noqa: PLC0415 - behind an extra

    columns = [
        rows.column(each.name).cast(each.type, safe=False)
        if each.name in rows.schema.names
        else pa.nulls(rows.num_rows, each.type)
        for each in schema
    ]
    return pa.table(columns, schema=schema)


def sync_all(directory: str) -> None:
    """Have a directory and its files on disk."""
    for name in os.listdir(directory):
        with contextlib.suppress(FileNotFoundError):
            sync(f"{directory}/{name}")
    sync(directory)


def sync(path: str) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
