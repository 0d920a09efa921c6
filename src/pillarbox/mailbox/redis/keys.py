"""The keys of a queue: all under one hash tag, so that a script can use them together.

The dead-letter queue `orders_dlq` of `orders` shares its hash tag: `{queue:orders}:line` and
`{queue:orders}_dlq:line`. So a message is dead-lettered in one atomic step, on a cluster as well.
"""

from __future__ import annotations

from binascii import crc_hqx
from typing import NamedTuple

DEAD = "_dlq"
# In the order of queue.lua, which documents each.
PARTS = (
    "queue",
    "bodies",
    "states",
    "line",
    "leases",
    "later",
    "grouped",
    "groups",
    "wake",
    "parked",
    "outbox",
    "arrived",
    "journal",
)
_SLOTS = 16_384


class QueueKeys(NamedTuple):
    """The keys of one queue."""

    name: str
    prefix: str
    slot: int
    keys: tuple[bytes, ...]

    def key(self, part: str) -> bytes:
        return f"{self.prefix}:{part}".encode()


def keys_of(name: str) -> QueueKeys:
    root = name
    while root.endswith(DEAD) and root != DEAD:
        root = root.removesuffix(DEAD)
    tag = f"queue:{root}"
    prefix = f"{{{tag}}}{name[len(root) :]}"
    keys = tuple(f"{prefix}:{part}".encode() for part in PARTS)
    return QueueKeys(name, prefix, crc_hqx(tag.encode(), 0) % _SLOTS, keys)


def partner_of(name: str) -> str:
    """Return the queue under the same hash tag: the source queue, or the dead-letter queue."""
    return name.removesuffix(DEAD) if name.endswith(DEAD) and name != DEAD else name + DEAD
