"""Mailboxes on Redis: one server, a cluster, or a master that sentinels watch.

One state machine, in Lua (`scripts`), does every verb in one atomic round trip; time is the
server's. `open_url` is what `open_mailbox("redis://...")` calls. Needs Redis 7 or newer.
"""

from __future__ import annotations

from typing import Any

from pillarbox.extras import extra

with extra("redis", "a mailbox on Redis"):
    import redis as _redis

from pillarbox.mailbox.redis.errors import NotReplicatedError, RefusedError
from pillarbox.mailbox.redis.mailbox import AsyncRedisMailbox, RedisMailbox
from pillarbox.mailbox.redis.options import RedisOptions, servers_of_url
from pillarbox.mailbox.redis.queues import delete_queue, list_queues

__all__ = [
    "AsyncRedisMailbox",
    "NotReplicatedError",
    "RedisMailbox",
    "RedisOptions",
    "RefusedError",
    "delete_queue",
    "list_queues",
    "open_async_url",
    "open_url",
]

del _redis


def open_url(url: str, body_type: Any = Any, **options: Any) -> RedisMailbox[Any]:
    """The mailbox that a URL names; see `options` for its forms."""
    _, name, in_url = servers_of_url(url, asynchronous=False)
    return RedisMailbox(name, body_type, url=url, **{**in_url, **options})


def open_async_url(url: str, body_type: Any = Any, **options: Any) -> AsyncRedisMailbox[Any]:
    """`open_url` for asyncio."""
    _, name, in_url = servers_of_url(url, asynchronous=True)
    return AsyncRedisMailbox(name, body_type, url=url, **{**in_url, **options})
