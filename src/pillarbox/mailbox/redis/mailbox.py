"""`RedisMailbox` and `AsyncRedisMailbox`: on one server, a cluster, or with Sentinel."""

from __future__ import annotations

from typing import Any, Generic, Unpack

from pillarbox.codec import codec_for
from pillarbox.core import limits
from pillarbox.mailbox.abstract import AbstractAsyncMailbox, AbstractMailbox
from pillarbox.mailbox.protocol import ANY, B, BodyType
from pillarbox.mailbox.redis.connection import AsyncRedisConnection, RedisConnection
from pillarbox.mailbox.redis.options import CheckedOptions, RedisOptions
from pillarbox.mailbox.redis.queue import RedisQueue
from pillarbox.mailbox.redis.verbs import RedisVerbs


class RedisMailbox(AbstractMailbox[B], Generic[B]):
    """A mailbox on Redis. Thread-safe.

        orders = RedisMailbox("orders", Order, url="redis://localhost")

    Mailboxes of the same name on the same servers share one queue. Options: `RedisOptions`.
    """

    _verbs: RedisVerbs[B]
    _connection: RedisConnection

    def __init__(
        self, name: str, body_type: BodyType[B] = ANY, **options: Unpack[RedisOptions]
    ) -> None:
        checked = CheckedOptions(options, asynchronous=False)
        connection = RedisConnection(checked.servers, checked.retry_seconds)
        self._start(_verbs(name, body_type, checked), connection)


class AsyncRedisMailbox(AbstractAsyncMailbox[B], Generic[B]):
    """`RedisMailbox` for asyncio: the same arguments and methods, as coroutines."""

    def __init__(
        self, name: str, body_type: BodyType[B] = ANY, **options: Unpack[RedisOptions]
    ) -> None:
        checked = CheckedOptions(options, asynchronous=True)
        connection = AsyncRedisConnection(checked.servers, checked.retry_seconds)
        self._connect(_verbs(name, body_type, checked), connection)


def _verbs(name: str, body_type: Any, options: CheckedOptions) -> RedisVerbs[Any]:
    limits.queue_name(name)
    queue = RedisQueue(name, options.scripts, options.replicas, options.replica_seconds)
    verbs: RedisVerbs[Any] = RedisVerbs(queue, codec_for(body_type), options.max_body_bytes)
    verbs.wanted = options.settings
    return verbs
