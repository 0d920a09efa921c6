"""Reads the status of a PostgreSQL server, for `pillarbox doctor URL`."""

from __future__ import annotations

from typing import Any

from pillarbox.mailbox.postgres.errors import SchemaMissingError
from pillarbox.mailbox.postgres.queues import ask
from pillarbox.mailbox.postgres.schema import VERSION

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


def server_facts(url: str) -> dict[str, Any]:
    """Return settings of the server, and the schema versions there and in this Pillarbox."""
    (row,) = ask(url, f"SELECT {', '.join(_FIELDS.values())}")
    try:
        rows = ask(url, "SELECT version FROM pillarbox.schema_version")
    except SchemaMissingError:
        rows = [(0,)]
    return dict(zip(_FIELDS, row, strict=True)) | {"schema": rows[0][0], "known_schema": VERSION}
