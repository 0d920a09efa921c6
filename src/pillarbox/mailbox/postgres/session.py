"""One connection of a pool, and the statements that are prepared on it.

It uses libpq through psycopg's own loops, but no cursors: for a single statement on a connection
that nobody shares that takes 17 us of CPU time instead of 44.
"""

from __future__ import annotations

import re
import select
from collections.abc import Sequence
from functools import cache
from itertools import count
from struct import Struct
from typing import Any

from psycopg.adapt import Dumper, PyFormat, Transformer
from psycopg.errors import error_from_result
from psycopg.generators import execute
from psycopg.pq import ExecStatus, Format

from pillarbox.mailbox.postgres.wire import ByteArray
from pillarbox.mailbox.runner import Verb

_BINARY = Format.BINARY
_HEAD = Struct("!iiIii").pack
_LENGTH = Struct("!i").pack
_names = count()


class Session:
    """A connection of psycopg, for threads or for asyncio, whose calls are yielded."""

    def __init__(self, connection: Any, *, prepares: bool) -> None:
        self.connection = connection
        self._prepares = prepares
        self._prepared: dict[tuple[str, tuple[int, ...]], bytes | None] = {}
        connection.adapters.register_dumper(ByteArray, _ByteArrayDumper)
        self._transformer = Transformer(connection)
        self._input = select.poll()
        self._input.register(connection.fileno(), select.POLLIN)

    def is_alive(self) -> bool:
        """Whether an idle connection is usable. Data on it means that the server is closing it."""
        return not self.connection.closed and not self._input.poll(0)

    def is_broken(self) -> bool:
        """Whether no statement can follow the last one."""
        connection = self.connection
        return bool(connection.closed or connection.pgconn.transaction_status != 0)

    def close(self) -> None:
        """Close the connection at once; those of asyncio have nothing to wait for, either."""
        self.connection.pgconn.finish()

    def ask(self, statement: str, parameters: Sequence[Any]) -> Verb[list[Any]]:
        """Run a statement and return its rows. It is prepared when it is used a second time."""
        transformer, server = self._transformer, self.connection.pgconn
        values = transformer.dump_sequence(parameters, [PyFormat.AUTO] * len(parameters))
        types, formats = transformer.types, transformer.formats
        key = statement, types
        name = self._prepared.get(key, b"") if self._prepares else b""
        if name is None:
            name = b"pillarbox_%d" % next(_names)
            server.send_prepare(name, _native(statement), types)
            _checked((yield self.connection.wait(execute(server))))
            self._prepared[key] = name
        if name:
            server.send_query_prepared(name, values, formats, _BINARY)
        else:
            server.send_query_params(_native(statement), values, types, formats, _BINARY)
            self._prepared[key] = None
        result = _checked((yield self.connection.wait(execute(server))))
        transformer.set_pgresult(result)
        rows: list[Any] = transformer.load_rows(0, result.ntuples, tuple)
        transformer.set_pgresult(None)  # it may be large
        return rows


def _checked(results: list[Any]) -> Any:
    """Return the result of a statement, or raise its error."""
    result = results[-1]
    if result.status == ExecStatus.FATAL_ERROR:
        raise error_from_result(result)
    return result


class _ByteArrayDumper(Dumper):  # type: ignore[misc]  # psycopg is optional, so it has no types
    """Encodes an array of bytes in a sixth of the time that psycopg takes for a list."""

    oid = 1001  # bytea[]
    format = Format.BINARY

    def dump(self, values: ByteArray) -> bytes:
        parts = [_HEAD(1, 0, 17, len(values), 1)]  # dimensions, flags, bytea, length, lower bound
        for each in values:
            parts += _LENGTH(len(each)), each
        return b"".join(parts)


@cache
def _native(statement: str) -> bytes:
    """Return a statement with the placeholders of the server: $1, $2."""
    numbers = count(1)
    return re.sub("%[sb]", lambda _: f"${next(numbers)}", statement).replace("%%", "%").encode()
