"""Mailboxes on Redis: one server, a cluster, or a master watched by Sentinel.

Every verb is one atomic script in Lua (`scripts`) and one round trip; time is the server's.
`open_mailbox("redis://...")` calls `open_url`. Needs Redis 7 or newer.
"""

from __future__ import annotations

from typing import Any

from pillarbox.extras import extra

with extra("redis", "a mailbox on Redis"):
    import redis as _redis

from pillarbox.mailbox.redis.errors import NotReplicatedError, RefusedError
from pillarbox.mailbox.redis.mailbox import AsyncRedisMailbox, RedisMailbox
from pillarbox.mailbox.redis.options import RedisOptions, servers_of_url
from pillarbox.mailbox.redis.queues import delete_queue, describe_queue, list_queues, pause_queue

__all__ = [
    "AsyncRedisMailbox",
    "NotReplicatedError",
    "RedisMailbox",
    "RedisOptions",
    "RefusedError",
    "delete_queue",
    "describe_queue",
    "list_queues",
    "open_async_url",
    "open_url",
    "pause_queue",
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
