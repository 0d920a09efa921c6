"""Which queues there are on a Redis server or cluster, and the end of one.

A queue is there if its settings are: they are written when it is first opened. All keys are
looked through for them, a page at a time, so other clients hardly notice.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

from pillarbox.core.errors import InvalidParameterError
from pillarbox.mailbox.redis.call import Call
from pillarbox.mailbox.redis.connection import RedisConnection
from pillarbox.mailbox.redis.keys import keys_of
from pillarbox.mailbox.redis.options import RETRY_SECONDS, servers_of_url
from pillarbox.mailbox.redis.queue import RedisQueue
from pillarbox.mailbox.redis.scripts import SCRIPTS
from pillarbox.mailbox.redis.servers import Servers
from pillarbox.mailbox.runner import Verb, run_sync

_PAGE = 1_000
_QUEUE = re.compile(rb"\{queue:([\w.:-]+)\}((?:_dlq)*):queue")


def list_queues(url: str) -> list[str]:
    """The URLs of all queues on a server; if the URL names a queue, that one, if it exists.

    A server is the part before the queue's name: `redis://host`, `redis://host/2/` for database 2,
    `redis+sentinel://host/service/`.
    """
    parts = urlsplit(url)
    path, _, name = parts.path.rpartition("/")
    with _connected(url if name else parts._replace(path=f"{path}/-").geturl()) as (
        connection,
        servers,
        _,
    ):
        if name:
            keys = keys_of(name)
            there = connection.do(Call(name, keys.slot, None, ["EXISTS", keys.key("queue")]))
            return [url] if there else []
        names = sorted(run_sync(connection.do, names_on(servers)))
    return [parts._replace(path=f"{path}/{each}").geturl() for each in names]


def delete_queue(url: str) -> None:
    """Delete a queue with all that it holds; its dead-letter queue stays.

    A mailbox that is open on it, or is opened later, makes it anew, without its settings.
    """
    with _connected(url) as (connection, _, name):
        if not run_sync(connection.do, delete(RedisQueue(name, SCRIPTS, 0, 0))):
            raise InvalidParameterError("url", url, "that of a queue which is there")


@contextmanager
def _connected(url: str) -> Iterator[tuple[RedisConnection, Servers, str]]:
    servers, name, _ = servers_of_url(url, asynchronous=False)
    connection = RedisConnection(servers, RETRY_SECONDS)
    try:
        yield connection, servers, name
    finally:
        connection.close()


def names_on(servers: Servers) -> Verb[set[str]]:
    """The names of all queues."""
    yield Call("-", 0, None, ["PING"])  # then it is known who serves the slots
    found = set()
    for slot in servers.slots():
        for key in (yield from _keys(slot, b"{queue:*}*:queue")):
            if match := _QUEUE.fullmatch(key):
                found.add((match[1] + match[2]).decode())
    return found


def _keys(slot: int, pattern: bytes) -> Verb[list[bytes]]:
    """The keys like this on the server that has a slot."""
    found: list[bytes] = []
    cursor = b"0"
    while True:
        command = ["SCAN", cursor, "MATCH", pattern, "COUNT", _PAGE]
        cursor, keys = yield Call("-", slot, None, command)
        found += keys
        if cursor == b"0":
            return found


def delete(queue: RedisQueue, *, all_keys: bool = True) -> Verb[bool]:
    """Whether it was there. Dead letters on their way elsewhere still get there.

    Without `all_keys` those that end by themselves within minutes are not looked for.
    """
    keys = queue.keys
    if not (yield queue.command("EXISTS", keys.key("queue"))):
        return False
    yield from queue.carry()
    dead = yield queue.command("HGET", keys.key("queue"), "dead")
    if dead is not None:
        other = queue.beside(dead.decode())
        yield from other.ask(other.call("disown", queue.name))
    yield queue.command("UNLINK", *keys.keys)
    if not all_keys:
        return True
    rest = yield from _keys(keys.slot, keys.key("*"))  # of its senders, and deduplication ids
    for first in range(0, len(rest), _PAGE):
        yield queue.command("UNLINK", *rest[first : first + _PAGE])
    return True
