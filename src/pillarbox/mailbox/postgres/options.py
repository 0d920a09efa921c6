"""The options of a mailbox on PostgreSQL, its URL, and the database it names.

    postgresql://user:password@host:5432/database/orders

The query after `?` has options of the mailbox or of libpq (`sslmode`, `target_session_attrs`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl, quote, unquote, urlencode

from pillarbox.core import limits
from pillarbox.core.errors import InvalidParameterError, MailboxConnectionError
from pillarbox.mailbox.options import check_options, take_options
from pillarbox.mailbox.postgres.errors import SERVER_VERSION_MIN
from pillarbox.mailbox.protocol import FairOptions
from pillarbox.mailbox.runner import Verb
from pillarbox.mailbox.url import split_url, without_password

RETRY_SECONDS = 15.0
_CONNECT_SECONDS = 5
_FORM = "postgresql://user@host/database/name"
_NO_ESCAPE = re.compile("%(?!(?!00)[0-9A-Fa-f]{2})")


class PostgresOptions(FairOptions, total=False):
    """Options to open a mailbox on PostgreSQL.

    `url` is the database, with or without the name of the queue. `history=True` records the events
    of the queue. While the server can't be reached, a call is retried for `retry_seconds`.
    `pooler=True` is for a transaction pooler in front of the server: no LISTEN, no prepared
    statements.
    """

    url: str
    max_body_bytes: int
    history: bool
    retry_seconds: float
    pooler: bool


_OPTIONS = tuple(PostgresOptions.__annotations__)


class Database:
    """One database, and how to connect to it."""

    def __init__(self, conninfo: str, retry_seconds: float, pooler: bool) -> None:
        self.conninfo = conninfo
        self.retry_seconds = retry_seconds
        self.pooler = pooler
        self._checked = False

    def check(self, connection: Any) -> Verb[None]:
        """Raise if the server is too old; find out whether the first connection has a pooler."""
        version = connection.info.server_version
        if version < SERVER_VERSION_MIN:
            raise MailboxConnectionError(
                f"this is PostgreSQL {version // 10_000}: Pillarbox needs "
                f"{SERVER_VERSION_MIN // 10_000} or newer"
            )
        if not self._checked:
            cursor = yield connection.execute("SELECT pg_backend_pid()")
            (answering,) = yield cursor.fetchone()
            self._checked = True
            self.pooler |= answering != connection.info.backend_pid


class CheckedOptions:
    """The validated options of one mailbox."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        check_options(options, _OPTIONS)
        if not isinstance(options.get("history", False), bool):
            raise InvalidParameterError("history", options["history"], "True or False")
        self.max_body_bytes: int = options.get("max_body_bytes", limits.BODY_BYTES_MAX)
        names = ("dead_letters", "redelivery", "capacity", "fair", "history", "create")
        self.settings = {name: options[name] for name in names if name in options}
        if "url" not in options:
            raise InvalidParameterError("url", None, f"of the form {_FORM}")
        conninfo, _, _ = parse_url(limits.text("url", options["url"]))
        self.database = Database(
            conninfo,
            float(options.get("retry_seconds", RETRY_SECONDS)),
            bool(options.get("pooler", False)),
        )


def parse_url(url: str) -> tuple[str, str, dict[str, Any]]:
    """Return libpq's connection string, the mailbox name in the URL if any, and its options."""
    parts = split_url(url, f"of the form {_FORM}")
    path = [unquote(part) for part in parts.path.split("/") if part]
    rooted = parts.path.startswith("/")
    if parts.scheme not in ("postgresql", "postgres") or not rooted or len(path) not in (1, 2):
        raise InvalidParameterError("url", without_password(url), f"of the form {_FORM}")
    if _NO_ESCAPE.search(parts.netloc):  # libpq would show the password
        form = f"of the form {_FORM}, with % as %25"
        raise InvalidParameterError("url", without_password(url), form)
    query = dict(parse_qsl(parts.query))
    options = take_options(query, _OPTIONS)
    query.setdefault("connect_timeout", str(_CONNECT_SECONDS))
    query.setdefault("application_name", "pillarbox")
    query["client_encoding"] = "utf8"
    database = parts.path.split("/")[1]
    conninfo = f"postgresql://{parts.netloc}/{database}?{urlencode(query, quote_via=quote)}"
    return conninfo, path[1] if len(path) == 2 else "", options


def named_in(url: str) -> tuple[str, dict[str, Any]]:
    """Return the mailbox name of a URL, and the options to open it with."""
    _, name, options = parse_url(url)
    if not name:
        raise InvalidParameterError("url", without_password(url), f"of the form {_FORM}")
    return name, {"url": url, **options}
