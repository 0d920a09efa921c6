"""Mailboxes on Redis: one server, a cluster, or a master watched by Sentinel.

Every verb is one atomic script in Lua (`scripts`) and one round trip; time is the server's.
`open_mailbox("redis://...")` calls `open_url`. Needs Redis 7 or newer.
"""

from __future__ import annotations

from pillarbox.extras import extra

with extra("redis", "a mailbox on Redis"):
    import redis as _redis

from pillarbox.mailbox.options import openers
from pillarbox.mailbox.redis.errors import NotReplicatedError, RefusedError
from pillarbox.mailbox.redis.mailbox import AsyncRedisMailbox, RedisMailbox
from pillarbox.mailbox.redis.options import RedisOptions, named_in
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
open_url, open_async_url = openers(RedisMailbox, AsyncRedisMailbox, named_in)
