"""The caller's own transaction: sends and acknowledgements that happen if and when it commits.

Accepted are connections of psycopg 3, and what has one inside: a `Session` or `Connection` of
SQLAlchemy 2 (and their asyncio twins), and Django's `django.db.connection`.
"""

from __future__ import annotations

from typing import Any

import psycopg

from pillarbox.core.errors import InvalidParameterError

_EXPECTED = (
    "a connection of psycopg 3, a Session or Connection of SQLAlchemy 2 over psycopg, or Django's"
    " connection"
)


def psycopg_connection(given: Any, *, asynchronous: bool) -> Any:
    """The connection of psycopg behind what the caller has."""
    kind = psycopg.AsyncConnection if asynchronous else psycopg.Connection
    found = _inside(given)
    if not isinstance(found, kind):
        raise InvalidParameterError("connection", given, _EXPECTED)
    return found


def _inside(given: Any) -> Any:
    if isinstance(given, (psycopg.Connection, psycopg.AsyncConnection)):
        return given
    given = getattr(given, "sync_session", given)  # of an AsyncSession
    given = getattr(given, "sync_connection", given)  # of an AsyncConnection of SQLAlchemy
    if hasattr(given, "ensure_connection"):  # Django's
        given.ensure_connection()
        return given.connection
    if hasattr(given, "get_bind"):  # a Session: it begins its transaction now, if it has not yet
        given = given.connection()
    pooled = getattr(given, "connection", None)
    return getattr(pooled, "driver_connection", None)
