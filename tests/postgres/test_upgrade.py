"""R140: a schema of an earlier version is brought to this one, whoever comes first."""

from __future__ import annotations

import psycopg
import pytest

from pillarbox import PostgresMailbox
from pillarbox.mailbox.postgres import schema
from pillarbox.mailbox.postgres.options import parse_url
from pillarbox.mailbox.postgres.shared import PostgresSharedStore
from pillarbox.testing.broker import running_broker
from tests.broker.support import Client


@pytest.fixture(params=[1, 2, 3])
def old(url: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """A database with the tables of an earlier version."""
    monkeypatch.setattr(schema, "VERSION", request.param)
    monkeypatch.setattr(schema, "_FUNCTIONS", ())
    schema.initialise(parse_url(url)[0])
    monkeypatch.undo()
    return url


def _version(url: str) -> int:
    with psycopg.connect(url) as connection:
        return schema.version_of(connection)


def test_R140_a_mailbox_migrates_the_schema(old: str) -> None:
    with PostgresMailbox("orders", str, url=old) as box:
        box.send("a")
        assert [m.body for m in box.receive()] == ["a"]
    assert _version(old) == schema.VERSION


def test_R141_a_broker_migrates_the_schema(old: str) -> None:
    with running_broker(shared_store=PostgresSharedStore(old)) as url, Client(url) as sqs:
        queue = sqs.create()
        sqs.send(queue, "a")
        assert sqs.bodies(queue) == ["a"]
    assert _version(old) == schema.VERSION
