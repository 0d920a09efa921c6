"""The page of the documentation on what each backend can't do, from what the backends declare.

python -m tests.contract.backends.page > docs/reference/backends.md
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import NamedTuple

from pillarbox.testing.contract.backend import Backend, Bounds, Capability
from pillarbox.testing.contract.memory import MemoryBackend
from tests.contract.backends.broker import BrokerBackend
from tests.contract.backends.durable import DurableBackend
from tests.contract.backends.postgres import PostgresBackend
from tests.contract.backends.redis import RedisBackend, RedisClusterBackend
from tests.contract.backends.sqs import BROKER_CANNOT, SQS_CANNOT, SQSBackend


class Column(NamedTuple):
    """A backend as the page shows it."""

    title: str
    url: str
    cannot: Mapping[Capability, str]
    bounds: Bounds


def _column(title: str, url: str, backend: type[Backend]) -> Column:
    return Column(title, url, backend.cannot, backend.bounds)


COLUMNS = (
    _column("memory", "memory:name", MemoryBackend),
    _column("disk", "file:directory/name", DurableBackend),
    _column("broker", "http://host:9324/name", BrokerBackend),
    _column("Redis", "redis://host/name", RedisBackend),
    _column("Redis Cluster", "redis+cluster://host/name", RedisClusterBackend),
    _column("PostgreSQL", "postgresql://host/database/name", PostgresBackend),
    Column("broker (as SQS)", "sqs+http://host:9324/name", BROKER_CANNOT, SQSBackend.bounds),
    Column("Amazon SQS", "sqs://region/name", SQS_CANNOT, SQSBackend.bounds),
)
HIDDEN = {Capability.TIME_TRAVEL}  # of interest to tests only

_LIMITS = {
    "body with its attributes, bytes": "body_bytes_max",
    "messages per receive": "messages_max",
    "delay, seconds": "delay_seconds_max",
    "lease, seconds": "visibility_seconds_max",
    "wait, seconds": "wait_seconds_max",
    "attributes": "attributes_max",
}

_HEAD = """\
# What each backend can do

Every backend passes the same [contract suite](testing.md). A backend declares what it can't do,
with a reason. This page is generated from those declarations, and a test keeps it up to date.
"""

_TAIL = """\
For what it can't do, a mailbox on SQS raises `UnsupportedOperationError` (`peek`, `delete`) or
`InvalidParameterError` (`group` on a standard queue, `redelivery="original"`), or does the closest
thing: `release` and `reject` return the message to the queue, and `priority` is sent along.
"""


def page() -> str:
    """The page, as Markdown."""
    wanting = [
        each
        for each in Capability
        if each not in HIDDEN and any(each in column.cannot for column in COLUMNS)
    ]
    can = [
        [each.value, *("no" if each in column.cannot else "yes" for column in COLUMNS)]
        for each in wanting
    ]
    limits = [
        [title, *(f"{getattr(column.bounds, field):,}" for column in COLUMNS)]
        for title, field in _LIMITS.items()
    ]
    urls = [[column.title, f"`{column.url}`"] for column in COLUMNS]
    heads = [column.title for column in COLUMNS]
    parts = [
        _HEAD,
        "## Backends\n",
        _table(["backend", "URL"], urls),
        "## Differences\n",
        _table(["can it ...", *heads], can),
        _TAIL,
        "## Why\n",
        *(line for each in wanting for line in _reasons(each)),
        "",
        "## Limits\n",
        _table(["maximum", *heads], limits),
    ]
    return "\n".join(parts)


def _reasons(capability: Capability) -> list[str]:
    """Who can't do this and why; those with the same reason together."""
    titles: dict[str, list[str]] = {}
    for column in COLUMNS:
        if capability in column.cannot:
            titles.setdefault(column.cannot[capability], []).append(column.title)
    return [
        f"- {' and '.join(those)} can't {capability.value}: {reason}"
        for reason, those in titles.items()
    ]


def _table(heads: list[str], rows: list[list[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join([*(f"| {' | '.join(line)} |" for line in lines), ""])


if __name__ == "__main__":
    sys.stdout.write(page())
