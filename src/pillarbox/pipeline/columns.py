"""Converts bodies to columns and back, on Spark.

A typed log already has columns. The bodies of a row log or a mailbox are parsed; bodies that can't
be parsed become rows of the error log, and so do rows that an output can't store.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.functions import arrow_udf

from pillarbox.codec import Codec, codec_for
from pillarbox.pipeline.errors import PipelineError
from pillarbox.pipeline.failures import CAUSE_CHARS_MAX, Failure
from pillarbox.pipeline.graph import ERRORS, LogRef, Processor
from pillarbox.pipeline.references import resolved
from pillarbox.pipeline.schema import (
    BODY,
    METADATA,
    UNREADABLE,
    VARIANT,
    Shape,
    decoder_of_rows,
    quoted,
    shape_of,
)
from pillarbox.pipeline.schema import Column as Field

RAW = "_raw"
OUTPUT = "output"
CAUSE = "_cause"
_VALUE = "_value"
_ROW = "_row"
_JSON = {"timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX", "ignoreNullFields": "false"}
_MADE = "array<struct<output:string,body:binary,cause:string>>"


# -- reading inputs ------------------------------------------------------------------------


def typed(stored: DataFrame, log: LogRef, added: Collection[str] = ()) -> DataFrame:
    """Return the rows of a typed log as its processors see them.

    `added` are columns that older files lack; they get their default values there.
    """
    fields = shape_of(log.body_type).columns
    as_stored = not added and not any(VARIANT in each.type for each in fields)
    if as_stored and stored.columns == [*(each.name for each in fields), *METADATA]:
        return _filtered(stored, log)
    columns = []
    for each in fields:
        column = _unpacked(each, _named(each.name))
        value = _or_default(each, column) if each.name in added else column
        columns.append(value.alias(each.name))
    return _filtered(stored.select(*columns, *METADATA), log)


def parsed(raw: DataFrame, log: LogRef) -> DataFrame:
    """Parse each body (`_index`, `_time`, `_raw`) into a value, or a cause of failure."""
    shape = shape_of(log.body_type)
    value, unreadable = _parsed(shape, F.col(RAW))
    wanted = getattr(log.body_type, "__qualname__", str(log.body_type))
    cause = F.when(unreadable, F.lit(f"the body can't be read as {wanted}"))
    for field, missing in _missing(shape.columns, _VALUE):
        cause = cause.when(missing, F.lit(f"the field {field!r} is missing or null"))
    return raw.withColumn(_VALUE, value).withColumn(CAUSE, cause)


def readable(bodies: DataFrame, log: LogRef) -> DataFrame:
    """Return the parsed bodies that have a value, as columns."""
    shape = shape_of(log.body_type)
    good = bodies.where(F.col(CAUSE).isNull()).select(*_columns(shape), *METADATA)
    return _filtered(good, log)


def unreadable(bodies: DataFrame, log: LogRef, processor: Processor) -> DataFrame:
    """Return the bodies that could not be parsed, as rows of the error log."""
    return bodies.where(F.col(CAUSE).isNotNull()).select(*_failure_columns(log, processor))


def _failure_columns(log: LogRef, processor: Processor, cause: str = CAUSE) -> list[Column]:
    return _failure(processor.id, F.col(cause), F.col(RAW), log=log.name)


def _filtered(rows: DataFrame, log: LogRef) -> DataFrame:
    return rows.where(log.condition) if log.condition else rows


def can_fail(log: LogRef) -> bool:
    """Return whether parsing a body of this log, if it is a row log, can fail."""
    return shape_of(log.body_type).kind != "bytes"


def _parsed(shape: Shape, body: Column) -> tuple[Column, Column]:
    """Return all columns of a body as one struct, and whether parsing it failed."""
    text = body.cast("string")
    if shape.kind == "bytes":
        return F.struct(body.alias(BODY)), F.lit(False)
    if shape.kind == "text":
        return F.struct(text.alias(BODY)), ~F.is_valid_utf8(text)
    if shape.untyped:
        return F.struct(F.try_parse_json(text).alias(BODY)), F.col("_value.body").isNull()
    if shape.kind == "json":
        text = F.concat(F.lit('{"body":'), text, F.lit("}"))
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": UNREADABLE}
    parsed = F.from_json(text, f"{shape.ddl}, {UNREADABLE} STRING", options)
    return parsed, F.col(_VALUE).isNull() | F.col(f"{_VALUE}.{UNREADABLE}").isNotNull()


def _columns(shape: Shape) -> Iterator[Column]:
    for each in shape.columns:
        yield _or_default(each, F.col(f"{_VALUE}.{quoted(each.name)}")).alias(each.name)


def _or_default(field: Field, value: Column) -> Column:
    if field.default is None:
        return value
    default = F.lit(field.default) if field.default != {} else F.create_map()
    return F.coalesce(value, default.cast(field.type))


def _missing(fields: Iterable[Field], inside: str | None) -> Iterator[tuple[str, Column]]:
    """Yield each required field with the condition that it is missing."""
    for each in fields:
        path = quoted(each.name) if inside is None else f"{inside}.{quoted(each.name)}"
        parent_exists = F.lit(True) if inside is None else F.col(inside).isNotNull()
        if each.required and each.default is None:
            yield each.name, parent_exists & F.col(path).isNull()
        yield from ((f"{each.name}.{name}", when) for name, when in _missing(each.parts, path))


# -- writing outputs -----------------------------------------------------------------------


def storable(rows: DataFrame, log: LogRef, processor: Processor) -> DataFrame:
    """Return the rows that a processor made for an output, as the columns of its table."""
    shape = shape_of(log.body_type)
    names = [name for name in rows.columns if name not in METADATA]
    if shape.untyped and names != [BODY]:
        return rows.select(F.to_json(F.struct(*map(_named, names)), _JSON).alias(BODY))
    _check_columns(names, log, shape, processor)
    # As SQL text: each Column object built in Python costs several calls to the JVM.
    cast = rows.selectExpr(
        *(f"CAST({quoted(x.name)} AS {x.type}) AS {quoted(x.name)}" for x in shape.columns)
    )
    if not any(VARIANT in each.type for each in shape.columns):
        return cast
    return cast.select(*(_packed(x, _named(x.name)).alias(x.name) for x in shape.columns))


def required_fields(log: LogRef) -> tuple[Field, ...]:
    """Return the fields of an output that may not be null, or that contain such fields."""
    shape = shape_of(log.body_type)
    return () if shape.untyped else tuple(filter(_is_required, shape.columns))


def _is_required(field: Field) -> bool:
    return (field.required and field.default is None) or any(map(_is_required, field.parts))


def may_lack(required: Iterable[Field], with_nulls: Collection[str]) -> bool:
    """Return whether rows may lack a required value, given the columns that contain nulls.

    Column statistics don't cover the fields inside a column that is stored as JSON.
    """
    return any(
        (x.parts and VARIANT in x.type) or any(f"{y}.".startswith(f"{x.name}.") for y in with_nulls)
        for x in required
    )


def split(
    rows: DataFrame, required: Iterable[Field], output: str, processor_id: str
) -> tuple[DataFrame, DataFrame]:
    """Split rows for a table into failures, which lack a required value, and good rows."""
    row = F.struct(*map(_named, rows.columns)).alias(_ROW)
    values = [_unpacked(each, _named(each.name)).alias(each.name) for each in required]
    cause = F.when(F.lit(False), F.lit(""))
    for name, missing in _missing(required, None):
        cause = cause.when(missing, F.lit(f"the column {name!r} is null"))
    checked = rows.select(row, *values).withColumn(CAUSE, cause)
    body = F.to_json(_ROW, _JSON).cast("binary")
    failed = checked.where(F.col(CAUSE).isNotNull()).select(
        *_failure(processor_id, F.col(CAUSE), body, output=output)
    )
    return failed, checked.where(F.col(CAUSE).isNull()).select(f"{_ROW}.*")


def _failure(
    processor_id: str,
    cause: Column,
    body: Column,
    *,
    log: str | None = None,
    output: str | None = None,
) -> list[Column]:
    """Return the columns of a row of the error log: of a record of a log, or for an output."""
    values = {
        "processor": F.lit(processor_id),
        "cause": F.substring(cause, 1, CAUSE_CHARS_MAX),
        "log": F.lit(log),
        "index": F.lit(None) if log is None else F.col("_index"),
        "output": F.lit(output),
        "time": F.current_timestamp(),
        "body": body,
    }
    types = {each.name: each.type for each in shape_of(Failure).columns}
    return [values[name].cast(kind).alias(name) for name, kind in types.items()]


def _packed(field: Field, value: Column) -> Column:
    """Return a value in the form that its table stores."""
    if field.type == VARIANT:
        return F.to_json(value)
    if VARIANT in field.type:
        return F.when(value.isNotNull(), F.to_json(F.struct(value.alias("v")), _JSON))
    return value


def _unpacked(field: Field, value: Column) -> Column:
    if field.type == VARIANT:
        return F.parse_json(value)
    if VARIANT in field.type:
        return F.from_json(value, f"v {field.type}")["v"]
    return value


def _check_columns(names: list[str], log: LogRef, shape: Shape, processor: Processor) -> None:
    wanted = [each.name for each in shape.columns]
    if set(names) != set(wanted):
        raise PipelineError(
            f"the stream {processor.id!r} made the columns {', '.join(names)} for {log.name!r},"
            f" whose bodies have {', '.join(wanted)}; select exactly these"
        )


def bodies_of(batch: DataFrame, body_type: Any) -> DataFrame:
    """Return the rows of a batch as bodies of this type, in one column `body`."""
    shape = shape_of(body_type)
    names = [name for name in batch.columns if name not in METADATA]
    if shape.kind == "json" and names != [BODY]:
        packed = F.to_json(F.struct(*map(_named, names)), _JSON)
        return batch.select(packed.cast("binary").alias(BODY))
    cast = [_named(each.name).cast(each.type).alias(each.name) for each in shape.columns]
    return batch.select(F.struct(*cast).alias(_VALUE)).select(_bytes_of(shape).alias(BODY))


def as_raw(rows: DataFrame, log: LogRef) -> DataFrame:
    """Return the rows of a typed log as bodies, with `_index` and `_time`."""
    shape = shape_of(log.body_type)
    value = F.struct(*(_named(each.name) for each in shape.columns))
    return rows.select(*METADATA, value.alias(_VALUE)).select(
        *METADATA, _bytes_of(shape).alias(RAW)
    )


def _bytes_of(shape: Shape) -> Column:
    if shape.kind in ("bytes", "text"):
        return F.col("_value.body").cast("binary")
    if shape.kind == "object":
        return F.to_json(_VALUE, _JSON).cast("binary")
    # `to_json` takes only structs: wrap the value in one, and strip the wrapper from the text.
    text, prefix = F.to_json(_VALUE, _JSON), len('{"body":')
    return F.substr(text, F.lit(prefix + 1), F.length(text) - F.lit(prefix + 1)).cast("binary")


def _named(name: str) -> Column:
    return F.col(quoted(name))


# -- all outputs of a batch in one DataFrame -----------------------------------------------


def column_of(name: str) -> str:
    """Return the column that holds the rows for one log. No log name begins with `_`."""
    return f"_{name}"


def routed(bodies: DataFrame, log: LogRef, processor: Processor) -> DataFrame:
    """Return each parsed body in one column: the row that a sink sees, or a failure."""
    valid = F.col(CAUSE).isNull()
    row = [*_columns(shape_of(log.body_type)), *map(F.col, METADATA)]
    return bodies.select(
        F.when(valid, F.lit(log.name)).otherwise(F.lit(ERRORS)).alias(OUTPUT),
        F.when(valid, F.struct(*row)).alias(column_of(log.name)),
        F.when(~valid, F.struct(*_failure_columns(log, processor))).alias(column_of(ERRORS)),
    )


def packed(rows: DataFrame, output: str) -> DataFrame:
    """Return rows in the same form when all go to one output, or all to the error log."""
    columns = F.struct(*map(_named, rows.columns))
    return rows.select(F.lit(output).alias(OUTPUT), columns.alias(column_of(output)))


def rows_for(held: DataFrame, name: str) -> DataFrame:
    """Return the rows for one log from a routed or packed DataFrame."""
    return held.where(F.col(OUTPUT) == name).select(f"`{column_of(name)}`.*")


# -- one record at a time ------------------------------------------------------------------


def mapped(
    raw: DataFrame,
    log: LogRef,
    outputs: tuple[LogRef, ...],
    of: Processor,
    portable: Callable[[Any], Any],
    *,
    stored: bool = False,
) -> DataFrame:
    """Call a function with each body; an exception becomes a row of the error log.

    `portable` converts functions and types to a form that workers can load. If the bodies are
    `stored` in a typed log, a null may stand for the default of a field.
    """
    types = {each.name: portable(each.body_type) for each in outputs}
    function = _on_arrays(portable(of.function), portable(log.body_type), types, stored=stored)
    run = arrow_udf(function, _MADE)  # type: ignore[call-overload]  # its hints say the kind
    rows = raw.select("_index", RAW, F.inline(run(RAW)))
    failed = F.col("cause").isNotNull()
    return rows.select(
        F.when(failed, F.lit(ERRORS)).otherwise(F.col(OUTPUT)).alias(OUTPUT),
        *(_made_for(each).alias(column_of(each.name)) for each in outputs),
        F.when(failed, F.struct(*_failure_columns(log, of, "cause"))).alias(column_of(ERRORS)),
    )


def _made_for(log: LogRef) -> Column:
    """Return a body that was made for an output, as the columns of its table."""
    shape = shape_of(log.body_type)
    if shape.untyped:
        value = F.struct(F.col(BODY).cast("string").alias(BODY))
    else:
        parsed = _parsed(shape, F.col(BODY))[0]
        fields = [(each, _or_default(each, parsed.getField(each.name))) for each in shape.columns]
        value = F.struct(*(_packed(each, column).alias(each.name) for each, column in fields))
    return F.when(F.col(OUTPUT) == log.name, value)


def _on_arrays(function: Any, body_type: Any, types: dict[str, Any], *, stored: bool) -> Any:
    """Return the function as an Arrow UDF: from an array of bodies to lists of rows."""

    def run(bodies: pa.Array) -> pa.Array:
        kind = resolved(body_type)
        decode = decoder_of_rows(kind) if stored else codec_for(kind).decode
        encoders = {name: codec_for(resolved(each)) for name, each in types.items()}
        fields: list[Any] = [
            ("output", pa.string()),
            ("body", pa.binary()),
            ("cause", pa.string()),
        ]
        call = resolved(function)
        rows = [one_record(call, decode, encoders, each.as_py()) for each in bodies]
        return pa.array(rows, pa.list_(pa.struct(fields)))

    # Spark inspects the annotations as types; in this module they are strings.
    run.__annotations__ = {"bodies": pa.Array, "return": pa.Array}
    return run


def one_record(
    function: Callable[[Any], Any],
    decode: Callable[[bytes], Any],
    encoders: dict[str, Codec[Any]],
    data: bytes,
) -> list[dict[str, Any]]:
    """Return the output rows of one body, or one row with the cause of the failure."""
    try:
        result = function(decode(data))
        by_output = isinstance(result, dict) and result and result.keys() <= encoders.keys()
        made = result if by_output else {next(iter(encoders)): result}
        return [
            {"output": name, "body": encoders[name].encode(body), "cause": None}
            for name, bodies in made.items()
            for body in _as_iterable(bodies)
        ]
    except Exception as error:  # noqa: BLE001 - whatever a user's function raises is the cause
        return [{"output": None, "body": None, "cause": f"{type(error).__name__}: {error}"}]


def _as_iterable(bodies: Any) -> Iterable[Any]:
    if bodies is None:
        return ()
    return bodies if isinstance(bodies, list | tuple | Iterator) else (bodies,)
