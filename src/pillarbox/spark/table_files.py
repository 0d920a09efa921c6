"""The rows of a Parquet file as its table has them."""

from __future__ import annotations

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
