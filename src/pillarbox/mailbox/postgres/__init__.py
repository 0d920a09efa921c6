"""Mailboxes in a PostgreSQL database.

Every verb is one function of the schema `pillarbox` (`sql`), in one round trip; time is the
server's. `open_mailbox("postgresql://...")` calls `open_url`. Needs PostgreSQL 13 or newer.
"""

from __future__ import annotations

from pillarbox.extras import extra

with extra("postgres", "a mailbox on PostgreSQL"):
    import psycopg as _psycopg

from pillarbox.mailbox.options import openers
from pillarbox.mailbox.postgres.errors import RefusedError, SchemaMissingError
from pillarbox.mailbox.postgres.mailbox import AsyncPostgresMailbox, PostgresMailbox
from pillarbox.mailbox.postgres.options import PostgresOptions, named_in
from pillarbox.mailbox.postgres.outbox import AsyncOutbox, Outbox
from pillarbox.mailbox.postgres.queues import (
    delete_queue,
    describe_queue,
    list_queues,
    pause_queue,
    storage,
)

__all__ = [
    "AsyncOutbox",
    "AsyncPostgresMailbox",
    "Outbox",
    "PostgresMailbox",
    "PostgresOptions",
    "RefusedError",
    "SchemaMissingError",
    "delete_queue",
    "describe_queue",
    "list_queues",
    "open_async_url",
    "open_url",
    "pause_queue",
    "storage",
]

del _psycopg
open_url, open_async_url = openers(PostgresMailbox, AsyncPostgresMailbox, named_in)
