"""Which queues there are in a database, and the end of one."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from pillarbox.core.errors import InvalidParameterError
from pillarbox.mailbox.postgres.call import Call
from pillarbox.mailbox.postgres.connection import PostgresConnection
from pillarbox.mailbox.postgres.errors import SchemaMissingError
from pillarbox.mailbox.postgres.options import RETRY_SECONDS, Database, named_in, parse_url

_STORAGE = """
SELECT pg_table_size(relid), pg_indexes_size(relid), n_live_tup, n_dead_tup
FROM pg_stat_user_tables WHERE schemaname = 'pillarbox' AND relname = 'messages'
"""


def list_queues(url: str) -> list[str]:
    """The URLs of all queues in a database; if the URL names a queue, that one, if it exists."""
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
    """Delete a queue with all that it holds; its dead-letter queue stays.

    A mailbox that is open on it, or is opened later, creates it again, without its settings.
    """
    name, _ = named_in(url)
    if not ask(url, "SELECT pillarbox.drop_queue(%s)", name)[0][0]:
        raise InvalidParameterError("url", url, "that of a queue which is there")


def storage(url: str) -> dict[str, int]:
    """What the messages of all queues of a database take, as PostgreSQL estimates it.

    Dead rows are those of messages that are gone; a vacuum gives their space back.
    """
    ((table, indexes, live, dead),) = ask(url, _STORAGE)
    return {"table_bytes": table, "index_bytes": indexes, "live_rows": live, "dead_rows": dead}


def ask(url: str, statement: str, *parameters: str) -> list[Any]:
    """The rows of one statement, over a connection of its own."""
    conninfo, name, _ = parse_url(url)
    connection = PostgresConnection(Database(conninfo, RETRY_SECONDS, pooler=False))
    try:
        rows: list[Any] = connection.do(Call(name or "-", statement, parameters))
        return rows
    finally:
        connection.close()
