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

# As it was in version 4. Beside the one of today, a call of `record` would be ambiguous.
OLD_FUNCTION = """
CREATE FUNCTION pillarbox.record(q pillarbox.queues, kind_ text, message_id_ bigint, fields_ jsonb)
RETURNS void LANGUAGE sql AS ''
"""


@pytest.fixture
def old(url: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """A database with the tables of version 4, the first that was released."""
    monkeypatch.setattr(schema, "VERSION", 4)
    monkeypatch.setattr(schema, "_FUNCTIONS", ())
    schema.initialise(parse_url(url)[0])
    monkeypatch.undo()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(OLD_FUNCTION)
    return url


def _version(url: str) -> int:
    with psycopg.connect(url) as connection:
        return schema.version_of(connection)


def test_R140_a_mailbox_migrates_the_schema(old: str) -> None:
    with PostgresMailbox("orders", str, url=old, history=True) as box:
        box.send("a")
        (message,) = box.receive()
        assert message.body == "a"
        assert message.acknowledge()
    assert _version(old) == schema.VERSION


def test_R141_a_broker_migrates_the_schema(old: str) -> None:
    with running_broker(shared_store=PostgresSharedStore(old)) as url, Client(url) as sqs:
        queue = sqs.create()
        sqs.send(queue, "a")
        assert sqs.bodies(queue) == ["a"]
    assert _version(old) == schema.VERSION
