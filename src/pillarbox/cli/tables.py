"""Typed logs of pipelines on the command line: their metadata and rows, without Spark."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from pillarbox.cli import output
from pillarbox.pipeline.rows import json_of
from pillarbox.spark.location import location_of
from pillarbox.spark.table import TableLog, is_table


def table_of(text: str) -> TableLog | None:
    """Return the typed log in a directory or at a URL; None if there is none."""
    location = location_of(text)
    return TableLog(location) if location is not None and is_table(location) else None


def info_of(table: TableLog) -> dict[str, Any]:
    files = table.files()
    return {
        "log": table.path,
        "format": "delta",
        "version": table.version,
        "first_index": table.first_index,
        "end_index": table.end_index,
        "files": len(files),
        "bytes": sum(each.size_bytes for each in files),
        "from": output.iso(_nanoseconds(files[0].time)) if files else None,
        "to": output.iso(_nanoseconds(files[-1].time)) if files else None,
        "columns": {field.name: str(field.type) for field in table.schema},
        "steps": table.last_steps(),
    }


def rows_of(table: TableLog, start: int, end: int | None) -> Iterator[dict[str, Any]]:
    """Yield rows as JSON objects, each with its index."""
    for index, row in table.rows(start, end):
        yield {"index": index} | msgspec.json.decode(json_of(row))


def _nanoseconds(when: Any) -> int:
    return int(when.timestamp() * 1_000_000) * 1000
