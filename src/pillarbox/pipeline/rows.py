"""Bodies as rows of a typed log, without Spark: converting them, and appending them to a log."""

from __future__ import annotations

import base64
import datetime
import decimal
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from pillarbox.codec import codec_for
from pillarbox.log import Log
from pillarbox.pipeline.schema import BODY, VARIANT, shape_of
from pillarbox.spark.table import TableLog, is_table

_NATIVE_TYPES = (bytes, datetime.datetime, datetime.date, decimal.Decimal)


def row_of(body: bytes, body_type: Any) -> dict[str, Any]:
    """Return an encoded body as the columns of a table."""
    shape = shape_of(body_type)
    value = codec_for(body_type).decode(body)
    if hasattr(value, "model_dump"):  # a pydantic model, which msgspec does not support
        value = value.model_dump(by_alias=True)
    plain = msgspec.to_builtins(value, builtin_types=_NATIVE_TYPES)
    columns = plain if shape.kind == "object" else {BODY: plain}
    row = {}
    for each in shape.columns:
        field = columns.get(each.name, each.default)
        if each.type == VARIANT:
            field = msgspec.json.encode(field).decode()
        elif VARIANT in each.type:
            field = msgspec.json.encode({"v": field}).decode()
        row[each.name] = field
    return row


class _TypedLog(TableLog):
    """A typed log with the `append_many` of a row log; each call is a commit."""

    def __init__(self, location: str, body_type: Any) -> None:
        super().__init__(location)
        self._body_type = body_type

    def append_many(self, bodies: Sequence[bytes]) -> None:
        self.append([row_of(body, self._body_type) for body in bodies], {})


def open_to_append(location: str, body_type: Any) -> Log | _TypedLog:
    """Open a log to append bodies to it: the typed log at this location, or a row log."""
    return _TypedLog(location, body_type) if is_table(location) else Log.open(location)


def json_of(row: Mapping[str, Any]) -> bytes:
    """Return a row of a table as JSON, with bytes that are not UTF-8 in base64."""
    return msgspec.json.encode({name: _plain(value) for name, value in row.items()})


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return base64.b64encode(value).decode()
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return str(value) if isinstance(value, uuid.UUID) else value
