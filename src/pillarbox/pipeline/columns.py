"""Bodies to columns and back, on Spark: what a processor sees, and what is written.

Whatever can't be read or written becomes a row for the error log; the other rows go on. Rows
that leave a processor have two columns: `output`, the name of a log, and `body`, its bytes.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.functions import arrow_udf

from pillarbox.codec import Codec, codec_for
from pillarbox.pipeline.errors import PipelineError
from pillarbox.pipeline.failures import CAUSE_CHARS_MAX
from pillarbox.pipeline.graph import ERRORS, LogRef, Processor
from pillarbox.pipeline.references import resolved
from pillarbox.pipeline.schema import BODY, METADATA, Shape, shape_of
from pillarbox.pipeline.schema import Column as Field

RAW = "_raw"
_BAD = "_unreadable"
_JSON = {"timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX", "ignoreNullFields": "false"}
_FAILURE_JSON = _JSON | {"ignoreNullFields": "true"}
_MADE = "array<struct<output:string,body:binary,cause:string>>"


def decoded(raw: DataFrame, log: LogRef, processor: Processor) -> tuple[DataFrame, DataFrame]:
    """The bodies of a log as columns, and those that can't be read as rows for the error log.

    `raw` has `_index`, `_time` and `_raw`. It is read and parsed once for each of the two.
    """
    shape = shape_of(log.body_type)
    read = _judged(raw, log, shape)
    good = read.where("_cause IS NULL").select(*_columns(shape), *METADATA)
    if log.condition:
        good = good.where(log.condition)
    bad = read.where("_cause IS NOT NULL").select(
        F.lit(ERRORS).alias("output"), _unread(processor, log).alias(BODY)
    )
    return good, bad


def sorted_out(raw: DataFrame, log: LogRef, processor: Processor, into: str) -> DataFrame:
    """Both in one pass: all columns of a body as the one column `into`, or a failure's bytes.

    What the log's condition turns down is still there.
    """
    shape = shape_of(log.body_type)
    fits = F.col("_cause").isNull()
    return _judged(raw, log, shape).select(
        F.when(fits, F.lit(log.name)).otherwise(F.lit(ERRORS)).alias("output"),
        F.when(fits, F.struct(*_columns(shape), *METADATA)).alias(into),
        F.when(~fits, _unread(processor, log)).alias(BODY),
    )


def _judged(raw: DataFrame, log: LogRef, shape: Shape) -> DataFrame:
    """Each row with its value, and with the cause if it can't be read."""
    value, unreadable = _value(shape)
    wanted = getattr(log.body_type, "__qualname__", str(log.body_type))
    cause = F.when(unreadable, F.lit(f"the body can't be read as {wanted}"))
    for field, missing in _missing(shape.columns, "_value"):
        cause = cause.when(missing, F.lit(f"the field {field!r} is missing or null"))
    return raw.withColumn("_value", value).withColumn("_cause", cause)


def _unread(processor: Processor, log: LogRef) -> Column:
    return failure(processor, F.col("_cause"), log=log.name, index="_index", body=RAW)


def can_fail(log: LogRef) -> bool:
    """Whether a body of this log can be one that can't be read."""
    return shape_of(log.body_type).kind != "bytes"


def _value(shape: Shape) -> tuple[Column, Column]:
    """All columns of a body as one struct, and whether it can't be read."""
    text = F.col(RAW).cast("string")
    if shape.kind == "bytes":
        return F.struct(F.col(RAW).alias(BODY)), F.lit(False)
    if shape.kind == "text":
        return F.struct(text.alias(BODY)), ~F.is_valid_utf8(text)
    if shape.columns[0].type == "VARIANT" and shape.kind == "json":
        return F.struct(F.try_parse_json(text).alias(BODY)), F.col("_value.body").isNull()
    if shape.kind == "json":
        text = F.concat(F.lit('{"body":'), text, F.lit("}"))
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _BAD}
    parsed = F.from_json(text, f"{shape.ddl}, {_BAD} STRING", options)
    return parsed, F.col("_value").isNull() | F.col(f"_value.{_BAD}").isNotNull()


def _columns(shape: Shape) -> Iterator[Column]:
    for each in shape.columns:
        column = F.col(f"_value.`{each.name}`")
        if each.default is not None:
            column = F.coalesce(column, F.lit(each.default).cast(each.type))
        yield column.alias(each.name)


def _missing(fields: Iterable[Field], inside: str) -> Iterator[tuple[str, Column]]:
    """The required fields, and when each of them is not there."""
    for each in fields:
        path = f"{inside}.`{each.name}`"
        there = F.col(inside).isNotNull()
        if each.required and each.default is None:
            yield each.name, there & F.col(path).isNull()
        yield from ((f"{each.name}.{name}", when) for name, when in _missing(each.parts, path))


def failure(
    processor: Processor,
    cause: Column,
    *,
    log: str | None = None,
    index: str | None = None,
    output: str | None = None,
    body: str | Column | None = None,
) -> Column:
    """The body of a row for the error log."""
    parts: dict[str, Column | None] = {
        "processor": F.lit(processor.id),
        "cause": F.substring(cause, 1, CAUSE_CHARS_MAX),
        "log": F.lit(log) if log else None,
        "index": F.col(index) if index else None,
        "output": F.lit(output) if output else None,
        "time": F.current_timestamp(),
        "body": F.col(body) if isinstance(body, str) else body,
    }
    known = [column.alias(name) for name, column in parts.items() if column is not None]
    return F.to_json(F.struct(*known), _FAILURE_JSON).cast("binary")


def encoded(made: DataFrame, log: LogRef, processor: Processor) -> DataFrame:
    """The rows that a processor made for one of its outputs, ready to be written."""
    shape = shape_of(log.body_type)
    untyped = shape.kind == "json" and shape.columns[0].type == "VARIANT"
    names = [name for name in made.columns if name not in METADATA]
    if untyped and names != [BODY]:
        body = F.to_json(F.struct(*map(_named, names)), _JSON).cast("binary")
        return made.select(F.lit(log.name).alias("output"), body.alias(BODY))
    _check_columns(names, log, shape, processor)
    cast = [_named(each.name).cast(each.type).alias(each.name) for each in shape.columns]
    held = made.select(F.struct(*cast).alias("_value"))
    body = _bytes_of(shape)
    missing = list(_missing(shape.columns, "_value"))
    if not missing:
        return held.select(F.lit(log.name).alias("output"), body.alias(BODY))
    cause = functools.reduce(
        lambda chain, each: chain.when(each[1], F.lit(f"the column {each[0]!r} is null")),
        missing[1:],
        F.when(missing[0][1], F.lit(f"the column {missing[0][0]!r} is null")),
    )
    failed = functools.reduce(operator.or_, (when for _, when in missing))
    row = F.to_json("_value", _JSON).cast("binary")
    lost = failure(processor, cause, output=log.name, body=row)
    return held.select(
        F.when(failed, F.lit(ERRORS)).otherwise(F.lit(log.name)).alias("output"),
        F.when(failed, lost).otherwise(body).alias(BODY),
    )


def bodies_of(batch: DataFrame, body_type: Any) -> DataFrame:
    """The rows of a batch as bodies of this type, in one column `body`."""
    shape = shape_of(body_type)
    names = [name for name in batch.columns if name not in METADATA]
    if shape.kind == "json" and names != [BODY]:
        packed = F.to_json(F.struct(*map(_named, names)), _JSON)
        return batch.select(packed.cast("binary").alias(BODY))
    cast = [_named(each.name).cast(each.type).alias(each.name) for each in shape.columns]
    return batch.select(F.struct(*cast).alias("_value")).select(_bytes_of(shape).alias(BODY))


def _bytes_of(shape: Shape) -> Column:
    if shape.kind in ("bytes", "text"):
        return F.col("_value.body").cast("binary")
    if shape.kind == "object":
        return F.to_json("_value", _JSON).cast("binary")
    # A value that is no object is written as the one field of one, and taken out of it again.
    text, prefix = F.to_json("_value", _JSON), len('{"body":')
    return F.substr(text, F.lit(prefix + 1), F.length(text) - F.lit(prefix + 1)).cast("binary")


def _check_columns(names: list[str], log: LogRef, shape: Shape, processor: Processor) -> None:
    wanted = [each.name for each in shape.columns]
    if set(names) != set(wanted):
        raise PipelineError(
            f"the stream {processor.id!r} made the columns {', '.join(names)} for {log.name!r},"
            f" whose bodies have {', '.join(wanted)}; select exactly these"
        )


def _named(name: str) -> Column:
    return F.col("`" + name.replace("`", "``") + "`")


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
    if log.condition:
        raise PipelineError(
            f"the stream {of.id!r} takes one record at a time, so its input can't have a"
            " where(): turn the others down in the function, with None"
        )
    types = {each.name: portable(each.body_type) for each in outputs}
    function = _on_arrays(portable(of.function), portable(log.body_type), types)
    run = arrow_udf(function, _MADE)  # type: ignore[call-overload]  # its hints say the kind
    rows = raw.select("_index", RAW, F.inline(run(RAW)))
    failed = F.col("cause").isNotNull()
    lost = failure(of, F.col("cause"), log=log.name, index="_index", body=RAW)
    return rows.select(
        F.when(failed, F.lit(ERRORS)).otherwise(F.col("output")).alias("output"),
        F.when(failed, lost).otherwise(F.col(BODY)).alias(BODY),
    )


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
