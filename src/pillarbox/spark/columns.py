"""The columns of a read, and how they are built from the stored records.

A name in the schema of a read is a column of the history or, if the history has no such column, a
field of the JSON body. Only the named columns are built and sent to Spark.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as arrow_json
from pyspark.errors import PySparkException
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import VariantType, VariantVal

from pillarbox.spark.errors import OptionError

LOG_SCHEMA = "`partition` INT, `index` BIGINT, `body` BINARY, `enqueued_at` TIMESTAMP"
MAILBOX_SCHEMA = (
    "`partition` INT, `index` BIGINT, `id` STRING, `body` BINARY,"
    " `attributes` MAP<STRING, STRING>, `priority` INT, `enqueued_at` TIMESTAMP, `kind` STRING,"
    " `queue` STRING, `time` TIMESTAMP"
)
#: The columns of a history; any other name in a schema is a field of the body.
OF_LOG = frozenset(("partition", "index", "body", "enqueued_at", "time"))
OF_MAILBOX = OF_LOG | {"id", "attributes", "priority", "kind", "queue", "details"}
_TIME = pa.timestamp("us", "UTC")
_TYPES: dict[str, Any] = {
    "index": pa.int64(),
    "time": _TIME,
    "kind": pa.string(),
    "id": pa.string(),
    "enqueued_at": _TIME,
    "body": pa.binary(),
    "priority": pa.int32(),
    "attributes": pa.map_(pa.string(), pa.string()),
    "details": pa.string(),
}
Values = Mapping[str, Callable[[Any], Any]]  # by column: a function from an event to its value


class Rows(Protocol):
    """Records of a log or events of a mailbox, in order, as columns that are built on demand."""

    def __len__(self) -> int: ...
    def column(self, name: str) -> Any:
        """Return an Arrow array with a value per row; None if the rows lack this column."""


class EventRows:
    """Events of one queue, given as Python objects."""

    def __init__(self, events: Sequence[Any], queue: str, values: Values) -> None:
        self._events, self._queue, self._values = events, queue, values

    def __len__(self) -> int:
        return len(self._events)

    def column(self, name: str) -> Any:
        if name == "queue":
            return pa.repeat(pa.scalar(self._queue), len(self))
        return pa.array(map(self._values[name], self._events), _TYPES[name])


class Columns:
    """Builds the columns of one schema. Can be pickled, to be sent to executors."""

    def __init__(self, schema: Any, *, mailbox: bool) -> None:
        self._schema = to_arrow_schema(schema, timezone="UTC")
        if not self._schema.names:
            raise OptionError("a schema needs one column or more")
        built_in = OF_MAILBOX if mailbox else OF_LOG
        self._fields = [field for field in self._schema if field.name not in built_in]
        variants = [each.name for each in schema if isinstance(each.dataType, VariantType)]
        self._variant = "body" in variants
        if set(variants) - {"body"}:
            raise OptionError("only the body can be a VARIANT; take its fields with variant_get")

    def shaped(self, rows: Rows) -> Any:
        """Return the rows as a record batch of the schema."""
        typed = typed_bodies(rows.column("body"), self._fields) if self._fields else {}
        arrays = [_cast(self._values(each, rows, typed), each, len(rows)) for each in self._schema]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _values(self, field: Any, rows: Rows, typed: dict[str, Any]) -> Any:
        name = field.name
        if name in typed:
            return typed[name]
        if name == "partition":
            return pa.repeat(pa.scalar(0, pa.int32()), len(rows))
        values = rows.column(name)
        if name == "body" and self._variant:
            return variants(values, field.type)
        if name == "body" and pa.types.is_struct(field.type):
            return structs(values, field.type)
        return values


def _cast(values: Any, field: Any, rows: int) -> Any:
    if values is None:
        return pa.nulls(rows, field.type)
    if values.type == field.type:
        return values
    try:
        # Timestamps lose precision: Spark has microseconds, not nanoseconds.
        return values.cast(field.type, safe=not pa.types.is_timestamp(field.type))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise OptionError(
            f"column {field.name} can't be read as {field.type} ({error}); change its type in the"
            " schema of the read"
        ) from error


def with_body(schema: str, body: str) -> str:
    """Return a schema with this type for the body: VARIANT, or names and types of fields."""
    kind = "VARIANT" if body.strip().upper() == "VARIANT" else f"STRUCT<{body}>"
    return schema.replace("`body` BINARY", f"`body` {kind}")


def structs(bodies: Any, kind: Any) -> Any:
    """Parse JSON bodies into structs; null where there is no body."""
    fields = [kind.field(number) for number in range(kind.num_fields)]
    columns = typed_bodies(bodies, fields)
    return pa.StructArray.from_arrays(
        [_cast(columns[each.name], each, len(bodies)) for each in fields],
        fields=fields,
        mask=pc.is_null(bodies),
    )


def variants(bodies: Any, kind: Any) -> Any:
    """Parse JSON bodies into Spark's VARIANT; null if a body is not JSON."""
    return pa.array([_variant(body) for body in bodies.to_pylist()], kind)


def _variant(body: bytes | None) -> dict[str, bytes] | None:
    if body is None:
        return None
    try:
        variant = VariantVal.parseJson(body.decode())
    except (ValueError, UnicodeDecodeError, PySparkException):
        return None
    return {"value": variant.value, "metadata": variant.metadata}


def typed_bodies(bodies: Any, fields: list[Any]) -> dict[str, Any]:
    """Parse fields of JSON bodies into columns; null where a value does not match its type."""
    table = _parsed_together(bodies, fields)
    if table is None:
        table = _parsed_singly(bodies, fields)
    return {field.name: table.column(field.name).combine_chunks() for field in fields}


def _parsed_together(bodies: Any, fields: list[Any]) -> Any:
    """Parse all bodies as one JSON Lines document; return None if any does not match."""
    if not len(bodies):
        return pa.schema(fields).empty_table()
    lines = pc.fill_null(bodies, b"{}")
    joined = pc.binary_join(
        pa.ListArray.from_arrays(pa.array([0, len(lines)], pa.int32()), lines), b"\n"
    )
    data = joined[0].as_buffer()
    schema = pa.schema([field.with_nullable(True) for field in fields])
    options = arrow_json.ParseOptions(
        explicit_schema=schema, unexpected_field_behavior="ignore", newlines_in_values=True
    )
    reading = arrow_json.ReadOptions(use_threads=False, block_size=max(data.size + 1, 1 << 16))
    try:
        table = arrow_json.read_json(pa.BufferReader(data), reading, options)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, io.UnsupportedOperation):
        return None
    return table if table.num_rows == len(bodies) else None


def _parsed_singly(bodies: Any, fields: list[Any]) -> Any:
    rows = [_object(body) for body in bodies.to_pylist()]
    return pa.table({each.name: _values(rows, each) for each in fields})


def _object(body: bytes | None) -> dict[str, Any]:
    try:
        value = msgspec.json.decode(body or b"{}")
    except msgspec.DecodeError:
        return {}
    return value if isinstance(value, dict) else {}


def _values(rows: list[dict[str, Any]], field: Any) -> Any:
    values = [row.get(field.name) for row in rows]
    try:
        return pa.array(values, field.type)
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        return pa.array([_fitting(value, field.type) for value in values], field.type)


def _fitting(value: Any, kind: Any) -> Any:
    try:
        pa.array([value], kind)
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        return None
    return value
