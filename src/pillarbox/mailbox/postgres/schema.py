"""Creates or migrates the schema `pillarbox` of a database, in one transaction.

Safe to run twice, and by two processes at once: an advisory lock lets one go first, and the other
then finds nothing to do.
"""

from __future__ import annotations

from importlib import resources
from typing import Any

import psycopg
from psycopg import errors as e
from psycopg import sql

from pillarbox.core.errors import MailboxError
from pillarbox.mailbox.postgres.errors import RefusedError, SchemaMissingError

VERSION = 5
_LOCK = 1885500416
# What each version adds to the one before; none before 4 was released.
_MIGRATIONS = {4: "tables", 5: "version_5"}
_FUNCTIONS = (
    "line", "fate", "fair", "send", "claim", "settle", "look", "queues", "history", "outbox",
    "shared",
)  # fmt: skip
# Functions may call one another before they are created: their bodies are checked when they run.
_BEGIN = "SET LOCAL check_function_bodies = off"


def version_of(connection: Any) -> int:
    """Return the version of a database's schema; 0 if there is none."""
    try:
        row = connection.execute("SELECT version FROM pillarbox.schema_version").fetchone()
    except (e.UndefinedTable, e.InvalidSchemaName):
        return 0
    return int(row[0])


def initialise(conninfo: str, grant: str | None = None) -> tuple[int, int]:
    """Create or migrate a database's schema; return the versions before and after."""
    try:
        with psycopg.connect(conninfo, autocommit=True) as connection:
            before = version_of(connection)
            if before > VERSION:
                raise SchemaMissingError(
                    f"the schema in this database has version {before}, this Pillarbox knows "
                    f"{VERSION}: upgrade Pillarbox"
                )
            with connection.transaction():
                _migrate(connection)
                if grant is not None:
                    _grant(connection, grant)
            return before, VERSION
    except e.InsufficientPrivilege as error:
        raise RefusedError(
            f"this role may not create the schema ({error.diag.message_primary}): run `pillarbox "
            "postgres init URL --grant ROLE` once as the owner of the database"
        ) from error
    except psycopg.Error as error:
        raise MailboxError(f"the schema can't be created: {str(error).strip()}") from error


def _migrate(connection: Any) -> None:
    connection.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
    connection.execute(_BEGIN)
    exists = connection.execute(
        "SELECT to_regclass('pillarbox.schema_version') IS NOT NULL"
    ).fetchone()[0]
    now = version_of(connection) if exists else 0
    if now == 0:
        connection.execute("CREATE SCHEMA IF NOT EXISTS pillarbox")
    for version, name in _MIGRATIONS.items():
        if now < version <= VERSION:
            connection.execute(text(name))
    for name in _FUNCTIONS:  # functions may change without a new version of the tables
        connection.execute(text(name))
    connection.execute("UPDATE pillarbox.schema_version SET version = %s", (VERSION,))


def _grant(connection: Any, role: str) -> None:
    to = sql.Identifier(role)
    for right in (
        "USAGE ON SCHEMA pillarbox",
        "SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA pillarbox",
        "USAGE ON ALL SEQUENCES IN SCHEMA pillarbox",
        "EXECUTE ON ALL FUNCTIONS IN SCHEMA pillarbox",
    ):
        connection.execute(sql.SQL("GRANT " + right + " TO {}").format(to))


def text(name: str) -> str:
    """Return the text of one of the SQL files."""
    return (resources.files(__package__) / "sql" / f"{name}.sql").read_text("utf-8")
