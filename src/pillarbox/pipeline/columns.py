"""Bodies to columns and back, on Spark: what a processor sees, and what is written.

A typed log has its columns already. The bodies of a row log or a mailbox are parsed, and those
that can't be read become rows for the error log, as does a row that its output can't take.
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
from pillarbox.pipeline.schema import BODY, METADATA, VARIANT, Shape, quoted, shape_of
from pillarbox.pipeline.schema import Column as Field

RAW = "_raw"
OUTPUT = "output"
CAUSE = "_cause"
_VALUE = "_value"
_ROW = "_row"
_BAD = "_unreadable"
_JSON = {"timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX", "ignoreNullFields": "false"}
_MADE = "array<struct<output:string,body:binary,cause:string>>"


# -- what a processor sees -----------------------------------------------------------------


def typed(stored: DataFrame, log: LogRef, added: Collection[str] = ()) -> DataFrame:
    """The rows of a typed log as its processors see them.

    `added` are columns that older files lack: they have their default there.
    """
    fields = shape_of(log.body_type).columns
    as_stored = not added and not any(VARIANT in each.type for each in fields)
    if as_stored and stored.columns == [*(each.name for each in fields), *METADATA]:
        return _narrowed(stored, log)
    columns = []
    for each in fields:
        column = _unpacked(each, _named(each.name))
        known = _or_default(each, column) if each.name in added else column
        columns.append(known.alias(each.name))
    return _narrowed(stored.select(*columns, *METADATA), log)


def parsed(raw: DataFrame, log: LogRef) -> DataFrame:
    """Parse each body (`_index`, `_time`, `_raw`): its value, or the cause why it has none."""
    shape = shape_of(log.body_type)
    value, unreadable = _parsed(shape, F.col(RAW))
    wanted = getattr(log.body_type, "__qualname__", str(log.body_type))
    cause = F.when(unreadable, F.lit(f"the body can't be read as {wanted}"))
    for field, missing in _missing(shape.columns, _VALUE):
        cause = cause.when(missing, F.lit(f"the field {field!r} is missing or null"))
    return raw.withColumn(_VALUE, value).withColumn(CAUSE, cause)


def readable(found: DataFrame, log: LogRef) -> DataFrame:
    """The parsed bodies that have a value, as columns."""
    shape = shape_of(log.body_type)
    good = found.where(F.col(CAUSE).isNull()).select(*_columns(shape), *METADATA)
    return _narrowed(good, log)


def unreadable(found: DataFrame, log: LogRef, processor: Processor) -> DataFrame:
    """The parsed bodies that have no value, as rows of the error log."""
    return found.where(F.col(CAUSE).isNotNull()).select(*_unread(log, processor))


def _unread(log: LogRef, processor: Processor, cause: str = CAUSE) -> list[Column]:
    return failure(processor.id, F.col(cause), log=log.name, index="_index", body=F.col(RAW))


def _narrowed(rows: DataFrame, log: LogRef) -> DataFrame:
    return rows.where(log.condition) if log.condition else rows


def can_fail(log: LogRef) -> bool:
    """Whether a body of this log can be one that can't be read, if it is a row log."""
    return shape_of(log.body_type).kind != "bytes"


def _parsed(shape: Shape, body: Column) -> tuple[Column, Column]:
    """All columns of a body as one struct, and whether it can't be read."""
    text = body.cast("string")
    if shape.kind == "bytes":
        return F.struct(body.alias(BODY)), F.lit(False)
    if shape.kind == "text":
        return F.struct(text.alias(BODY)), ~F.is_valid_utf8(text)
    if shape.untyped:
        return F.struct(F.try_parse_json(text).alias(BODY)), F.col("_value.body").isNull()
    if shape.kind == "json":
        text = F.concat(F.lit('{"body":'), text, F.lit("}"))
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _BAD}
    parsed = F.from_json(text, f"{shape.ddl}, {_BAD} STRING", options)
    return parsed, F.col(_VALUE).isNull() | F.col(f"{_VALUE}.{_BAD}").isNotNull()


def _columns(shape: Shape) -> Iterator[Column]:
    for each in shape.columns:
        yield _or_default(each, F.col(f"{_VALUE}.`{each.name}`")).alias(each.name)


def _or_default(field: Field, value: Column) -> Column:
    if field.default is None:
        return value
    return F.coalesce(value, F.lit(field.default).cast(field.type))


def _missing(fields: Iterable[Field], inside: str | None) -> Iterator[tuple[str, Column]]:
    """The required fields, and when each of them is not there."""
    for each in fields:
        path = f"`{each.name}`" if inside is None else f"{inside}.`{each.name}`"
        there = F.lit(True) if inside is None else F.col(inside).isNotNull()
        if each.required and each.default is None:
            yield each.name, there & F.col(path).isNull()
        yield from ((f"{each.name}.{name}", when) for name, when in _missing(each.parts, path))


# -- what is written -----------------------------------------------------------------------


def storable(made: DataFrame, log: LogRef, processor: Processor) -> DataFrame:
    """What a processor made for an output, as the columns of its table."""
    shape = shape_of(log.body_type)
    names = [name for name in made.columns if name not in METADATA]
    if shape.untyped and names != [BODY]:
        return made.select(F.to_json(F.struct(*map(_named, names)), _JSON).alias(BODY))
    _check_columns(names, log, shape, processor)
    # As text: each Column that Python makes is several calls of the JVM.
    cast = made.selectExpr(
        *(f"CAST({quoted(x.name)} AS {x.type}) AS {quoted(x.name)}" for x in shape.columns)
    )
    if not any(VARIANT in each.type for each in shape.columns):
        return cast
    return cast.select(*(_packed(x, _named(x.name)).alias(x.name) for x in shape.columns))


def required_fields(log: LogRef) -> tuple[Field, ...]:
    """The fields of an output's bodies that may not be null, or that have such fields."""
    shape = shape_of(log.body_type)
    return () if shape.untyped else tuple(filter(_is_required, shape.columns))


def _is_required(field: Field) -> bool:
    return (field.required and field.default is None) or any(map(_is_required, field.parts))


def may_lack(required: Iterable[Field], with_nulls: Collection[str]) -> bool:
    """Whether some rows of a table may lack a required value, by its columns that have nulls.

    Into a column that is kept as JSON nobody has looked.
    """
    return any(x.name in with_nulls or (x.parts and VARIANT in x.type) for x in required)


def split(
    rows: DataFrame, required: Iterable[Field], output: str, processor_id: str
) -> tuple[DataFrame, DataFrame]:
    """Of rows for a table: those that lack a required value, for the error log, and the others."""
    row = F.struct(*map(_named, rows.columns)).alias(_ROW)
    values = [_unpacked(each, _named(each.name)).alias(each.name) for each in required]
    cause = F.when(F.lit(False), F.lit(""))
    for name, missing in _missing(required, None):
        cause = cause.when(missing, F.lit(f"the column {name!r} is null"))
    found = rows.select(row, *values).withColumn(CAUSE, cause)
    body = F.to_json(_ROW, _JSON).cast("binary")
    failed = found.where(F.col(CAUSE).isNotNull()).select(
        *failure(processor_id, F.col(CAUSE), output=output, body=body)
    )
    return failed, found.where(F.col(CAUSE).isNull()).select(f"{_ROW}.*")


def failure(
    processor_id: str,
    cause: Column,
    *,
    log: str | None = None,
    index: str | None = None,
    output: str | None = None,
    body: Column,
) -> list[Column]:
    """The columns of a row of the error log."""
    values = {
        "processor": F.lit(processor_id),
        "cause": F.substring(cause, 1, CAUSE_CHARS_MAX),
        "log": F.lit(log),
        "index": F.col(index) if index else F.lit(None),
        "output": F.lit(output),
        "time": F.current_timestamp(),
        "body": body,
    }
    types = {each.name: each.type for each in shape_of(Failure).columns}
    return [values[name].cast(kind).alias(name) for name, kind in types.items()]


def _packed(field: Field, value: Column) -> Column:
    """A value as its table keeps it."""
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
    """The rows of a batch as bodies of this type, in one column `body`."""
    shape = shape_of(body_type)
    names = [name for name in batch.columns if name not in METADATA]
    if shape.kind == "json" and names != [BODY]:
        packed = F.to_json(F.struct(*map(_named, names)), _JSON)
        return batch.select(packed.cast("binary").alias(BODY))
    cast = [_named(each.name).cast(each.type).alias(each.name) for each in shape.columns]
    return batch.select(F.struct(*cast).alias(_VALUE)).select(_bytes_of(shape).alias(BODY))


def as_raw(rows: DataFrame, log: LogRef) -> DataFrame:
    """The rows of a typed log as bodies, with `_index` and `_time`."""
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
    # A value that is no object is written as the one field of one, and taken out of it again.
    text, prefix = F.to_json(_VALUE, _JSON), len('{"body":')
    return F.substr(text, F.lit(prefix + 1), F.length(text) - F.lit(prefix + 1)).cast("binary")


def _named(name: str) -> Column:
    return F.col(quoted(name))


# -- one DataFrame for all that a batch of a query leads to --------------------------------


def column_of(name: str) -> str:
    """The column for the rows of one log; no name of a log begins like this."""
    return f"_{name}"


def routed(found: DataFrame, log: LogRef, processor: Processor) -> DataFrame:
    """Each body that was parsed as one column: what a sink sees of it, or a failure."""
    fits = F.col(CAUSE).isNull()
    row = [*_columns(shape_of(log.body_type)), *map(F.col, METADATA)]
    return found.select(
        F.when(fits, F.lit(log.name)).otherwise(F.lit(ERRORS)).alias(OUTPUT),
        F.when(fits, F.struct(*row)).alias(column_of(log.name)),
        F.when(~fits, F.struct(*_unread(log, processor))).alias(column_of(ERRORS)),
    )


def packed(rows: DataFrame, output: str) -> DataFrame:
    """The same for rows that all go to one output, or all to the error log."""
    columns = F.struct(*map(_named, rows.columns))
    return rows.select(F.lit(output).alias(OUTPUT), columns.alias(column_of(output)))


def rows_for(held: DataFrame, name: str) -> DataFrame:
    """The rows for one log, of what was routed."""
    return held.where(F.col(OUTPUT) == name).select(f"`{column_of(name)}`.*")


# -- one record at a time ------------------------------------------------------------------


def mapped(
    raw: DataFrame,
    log: LogRef,
    outputs: tuple[LogRef, ...],
    of: Processor,
    portable: Callable[[Any], Any],
) -> DataFrame:
    """Run a function of one body on each; what it raises becomes a row for the error log.

    `portable` gives functions and types the form in which they travel to workers.
    """
    types = {each.name: portable(each.body_type) for each in outputs}
    function = _on_arrays(portable(of.function), portable(log.body_type), types)
    run = arrow_udf(function, _MADE)  # type: ignore[call-overload]  # its hints say the kind
    rows = raw.select("_index", RAW, F.inline(run(RAW)))
    failed = F.col("cause").isNotNull()
    return rows.select(
        F.when(failed, F.lit(ERRORS)).otherwise(F.col(OUTPUT)).alias(OUTPUT),
        *(_made_for(each).alias(column_of(each.name)) for each in outputs),
        F.when(failed, F.struct(*_unread(log, of, "cause"))).alias(column_of(ERRORS)),
    )


def _made_for(log: LogRef) -> Column:
    """A body that was made for an output, as the columns of its table."""
    shape = shape_of(log.body_type)
    if shape.untyped:
        value = F.struct(F.col(BODY).cast("string").alias(BODY))
    else:
        parsed = _parsed(shape, F.col(BODY))[0]
        made = [(each, _or_default(each, parsed.getField(each.name))) for each in shape.columns]
        value = F.struct(*(_packed(each, column).alias(each.name) for each, column in made))
    return F.when(F.col(OUTPUT) == log.name, value)


def _on_arrays(function: Any, body_type: Any, types: dict[str, Any]) -> Any:
    """The function as Spark wants it: from an array of bodies to an array of lists of rows."""

    def run(bodies: pa.Array) -> pa.Array:
        decode = codec_for(resolved(body_type)).decode
        encoders = {name: codec_for(resolved(each)) for name, each in types.items()}
        fields: list[Any] = [
            ("output", pa.string()),
            ("body", pa.binary()),
            ("cause", pa.string()),
        ]
        call = resolved(function)
        rows = [one_record(call, decode, encoders, each.as_py()) for each in bodies]
        return pa.array(rows, pa.list_(pa.struct(fields)))

    # Spark looks at the types themselves, and this module has them as text.
    run.__annotations__ = {"bodies": pa.Array, "return": pa.Array}
    return run


def one_record(
    function: Callable[[Any], Any],
    decode: Callable[[bytes], Any],
    encoders: dict[str, Codec[Any]],
    data: bytes,
) -> list[dict[str, Any]]:
    """The rows that come of one body: those for the outputs, or one that says what failed."""
    try:
        made = function(decode(data))
        first = next(iter(encoders))
        by_output = made if isinstance(made, dict) and made.keys() <= encoders.keys() else None
        rows = []
        for name, bodies in (by_output or {first: made}).items():
            for body in _several(bodies):
                rows.append({"output": name, "body": encoders[name].encode(body), "cause": None})
    except Exception as error:  # noqa: BLE001 - whatever a user's function raises is the cause
        return [{"output": None, "body": None, "cause": f"{type(error).__name__}: {error}"}]
    return rows


def _several(bodies: Any) -> Iterable[Any]:
    if bodies is None:
        return ()
    return bodies if isinstance(bodies, list | tuple | Iterator) else (bodies,)
