"""Which queues there are in a database, and the end of one."""

from __future__ import annotations

from urllib.parse import urlsplit

from pillarbox.core.errors import InvalidParameterError
from pillarbox.mailbox.postgres.call import Call
from pillarbox.mailbox.postgres.connection import PostgresConnection
from pillarbox.mailbox.postgres.errors import SchemaMissingError
from pillarbox.mailbox.postgres.options import RETRY_SECONDS, Database, named_in, parse_url


def list_queues(url: str) -> list[str]:
    """The URLs of all queues in a database; if the URL names a queue, that one, if it exists."""
    conninfo, name, _ = parse_url(url)
    connection = PostgresConnection(Database(conninfo, RETRY_SECONDS, pooler=False))
    try:
        rows = connection.do(Call(name or "-", "SELECT name FROM pillarbox.queues ORDER BY name"))
    except SchemaMissingError:
        rows = []
    finally:
        connection.close()
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
    conninfo, _, _ = parse_url(url)
    connection = PostgresConnection(Database(conninfo, RETRY_SECONDS, pooler=False))
    try:
        rows = connection.do(Call(name, "SELECT pillarbox.drop_queue(%s)", (name,)))
    finally:
        connection.close()
    if not rows[0][0]:
        raise InvalidParameterError("url", url, "that of a queue which is there")
