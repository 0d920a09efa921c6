"""Converts bodies to rows of a typed log and back, without Spark."""

from __future__ import annotations

import base64
import datetime
import decimal
import uuid
from collections.abc import Mapping
from typing import Any

import msgspec

from pillarbox.codec import codec_for
from pillarbox.pipeline.schema import BODY, VARIANT, shape_of

_NATIVE_TYPES = (bytes, datetime.datetime, datetime.date, decimal.Decimal)


def row_of(body: bytes, body_type: Any) -> dict[str, Any]:
    """Return an encoded body as the columns of a table."""
    shape = shape_of(body_type)
    value = codec_for(body_type).decode(body)
    if hasattr(value, "model_dump"):  # a pydantic model, which msgspec does not support
        value = value.model_dump(by_alias=True)
    plain = (
        msgspec.to_builtins(value, builtin_types=_NATIVE_TYPES) if shape.kind != "bytes" else value
    )
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
