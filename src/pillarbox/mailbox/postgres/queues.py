"""The queues of a database: list, describe, pause and delete them; facts about the server."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

import msgspec

from pillarbox.mailbox.postgres.connection import PostgresClient
from pillarbox.mailbox.postgres.errors import SchemaMissingError
from pillarbox.mailbox.postgres.options import named_in, parse_url
from pillarbox.mailbox.postgres.schema import VERSION
from pillarbox.mailbox.shared import QueueDescription, missing_queue

DESCRIBE = (
    "SELECT q.id, q.version, q.notes, d.name, q.max_deliveries, "
    "array(SELECT s.name FROM pillarbox.queues s WHERE s.dead = q.id), q.paused, q.fair "
    "FROM pillarbox.queues q LEFT JOIN pillarbox.queues d ON d.id = q.dead WHERE q.name = %s"
)
PAUSE = "SELECT pillarbox.pause_queue(%s, %s::boolean)"
_STORAGE = """
SELECT pg_table_size(relid), pg_indexes_size(relid), n_live_tup, n_dead_tup
FROM pg_stat_user_tables WHERE schemaname = 'pillarbox' AND relname = 'messages'
"""
_FIELDS = {
    "version": "current_setting('server_version')",
    "fsync": "current_setting('fsync')",
    "synchronous_commit": "current_setting('synchronous_commit')",
    "synchronous_standby_names": "current_setting('synchronous_standby_names')",
    "replicas": "(SELECT count(*) FROM pg_stat_replication)",
    "is_standby": "pg_is_in_recovery()",
    "role": "current_user",
    "time_ns": "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint * 1000",
}


def list_queues(url: str) -> list[str]:
    """Return the URLs of all queues in a database; if the URL names a queue, only that one."""
    _, name, _ = parse_url(url)
    try:
        rows = ask(url, "SELECT name FROM pillarbox.queues ORDER BY name")
    except SchemaMissingError:
        rows = []
    names = [row[0] for row in rows]
    if name:
        return [url] if name in names else []
    parts = urlsplit(url)
    return [parts._replace(path=f"{parts.path.rstrip('/')}/{each}").geturl() for each in names]


def delete_queue(url: str) -> None:
    """Delete a queue and its messages; its dead-letter queue stays.

    A mailbox that is open on it, or is opened later, creates it again, without its settings.
    """
    name, _ = named_in(url)
    if not ask(url, "SELECT pillarbox.drop_queue(%s)", name)[0][0]:
        raise missing_queue(url)


def describe_queue(url: str) -> QueueDescription | None:
    """Return the description of a queue; None if it does not exist."""
    name, _ = named_in(url)
    rows = ask(url, DESCRIBE, name)
    return description(rows[0]) if rows else None


def description(row: Any) -> QueueDescription:
    """Convert a row of `DESCRIBE`."""
    _, version, notes, dead, most, sources, *flags = row
    known = msgspec.msgpack.decode(notes) if notes else {}
    return QueueDescription(version or "", known, dead, most, tuple(sources), *flags)


def pause_queue(url: str, *, paused: bool) -> None:
    """Pause or resume delivery from a queue; it still accepts messages."""
    name, _ = named_in(url)
    if not ask(url, DESCRIBE, name):
        raise missing_queue(url)
    ask(url, PAUSE, name, paused)


def storage(url: str) -> dict[str, int]:
    """Return the space used by the messages of all queues, as PostgreSQL estimates it.

    Dead rows belong to deleted messages; a vacuum frees their space.
    """
    ((table, indexes, live, dead),) = ask(url, _STORAGE)
    return {"table_bytes": table, "index_bytes": indexes, "live_rows": live, "dead_rows": dead}


def server_facts(url: str) -> dict[str, Any]:
    """Return settings of the server, and the schema versions there and in this Pillarbox."""
    (row,) = ask(url, f"SELECT {', '.join(_FIELDS.values())}")
    try:
        rows = ask(url, "SELECT version FROM pillarbox.schema_version")
    except SchemaMissingError:
        rows = [(0,)]
    return dict(zip(_FIELDS, row, strict=True)) | {"schema": rows[0][0], "known_schema": VERSION}


def ask(url: str, statement: str, *parameters: str | bool) -> list[Any]:
    """Run one statement over a new connection and return its rows."""
    with PostgresClient(url) as client:
        return client.ask(statement, *parameters)
