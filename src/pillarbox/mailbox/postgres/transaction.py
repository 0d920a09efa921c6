"""The caller's transaction: sends and acknowledgements take effect when it commits.

Accepts connections of psycopg 3, and objects that contain one: a `Session` or `Connection` of
SQLAlchemy 2 (sync or async), and Django's `django.db.connection`.
"""

from __future__ import annotations

from typing import Any

import psycopg

from pillarbox.core.errors import InvalidParameterError

_EXPECTED = (
    "a connection of psycopg 3, a Session or Connection of SQLAlchemy 2 over psycopg, or Django's"
    " connection"
)


def psycopg_connection(candidate: Any, *, asynchronous: bool) -> Any:
    """Return the psycopg connection inside the caller's object."""
    kind = psycopg.AsyncConnection if asynchronous else psycopg.Connection
    found = _inside(candidate)
    if not isinstance(found, kind):
        raise InvalidParameterError("connection", candidate, _EXPECTED)
    return found


def _inside(candidate: Any) -> Any:
    if isinstance(candidate, (psycopg.Connection, psycopg.AsyncConnection)):
        return candidate
    candidate = getattr(candidate, "sync_session", candidate)  # of an AsyncSession
    # Of an AsyncConnection of SQLAlchemy.
    candidate = getattr(candidate, "sync_connection", candidate)
    if hasattr(candidate, "ensure_connection"):  # Django's
        candidate.ensure_connection()
        return candidate.connection
    if hasattr(candidate, "get_bind"):  # a Session: this begins its transaction if necessary
        candidate = candidate.connection()
    pooled = getattr(candidate, "connection", None)
    return getattr(pooled, "driver_connection", None)
