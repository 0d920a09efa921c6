"""Bodies as rows of a typed log, as generators on remote stores and redrives write them."""

from __future__ import annotations

import datetime
import uuid

import pydantic
from msgspec import Struct

from pillarbox.codec import codec_for
from pillarbox.pipeline.rows import row_of


class Brief(Struct, omit_defaults=True):
    number: int
    grams: int = 100


class Model(pydantic.BaseModel):
    id: uuid.UUID
    at: datetime.datetime
    tags: list[str] = []
    named: str = pydantic.Field("x", alias="called")


def test_R80_a_default_that_json_leaves_out_is_in_the_row() -> None:
    body = codec_for(Brief).encode(Brief(1))
    assert body == b'{"number":1}'
    assert row_of(body, Brief) == {"number": 1, "grams": 100}


def test_R80_a_pydantic_model_is_a_row() -> None:
    at = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    body = codec_for(Model).encode(Model(id=uuid.UUID(int=7), at=at, tags=["a"], called="y"))
    known = {"id": str(uuid.UUID(int=7)), "at": at, "tags": ["a"], "called": "y"}
    assert row_of(body, Model) == known
