"""The queues on a Redis server or cluster: list, describe, pause and delete them; server facts.

A queue exists if its settings do: they are written when it is first opened. Listing scans all
keys in pages, so that other clients are hardly affected.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

import msgspec

from pillarbox.core.errors import MailboxError
from pillarbox.mailbox.redis.call import Call
from pillarbox.mailbox.redis.connection import RedisClient
from pillarbox.mailbox.redis.queue import RedisQueue
from pillarbox.mailbox.redis.scripts import SCRIPTS
from pillarbox.mailbox.redis.servers import Servers
from pillarbox.mailbox.runner import Verb, run_sync
from pillarbox.mailbox.shared import QueueDescription, missing_queue

R = TypeVar("R")

_PAGE = 1_000
_CONFIG = ("appendfsync", "min-replicas-to-write")
_DESCRIBED: Final = ("version", "sqs", "redelivery", "dead", "max", "sources", "paused", "fair")
_QUEUE = re.compile(rb"\{queue:([\w.:-]+)\}((?:_dlq)*):queue")


def list_queues(url: str) -> list[str]:
    """Return the URLs of all queues on a server; if the URL names a queue, only that one.

    A server is the part before the queue's name: `redis://host`, `redis://host/2/` for database 2,
    `redis+sentinel://host/service/`.
    """
    parts = urlsplit(url)
    path, _, name = parts.path.rpartition("/")
    with RedisClient(url) as client:
        if name:
            return [url] if client.ask("EXISTS", client.keys.key("queue")) else []
        names = sorted(run_sync(client.do, names_on(client.servers)))
    return [parts._replace(path=f"{path}/{each}").geturl() for each in names]


def delete_queue(url: str) -> None:
    """Delete a queue and its messages; its dead-letter queue stays.

    A mailbox that is open on it, or is opened later, creates it again, without its settings.
    """
    if not _run(url, delete):
        raise missing_queue(url)


def describe_queue(url: str) -> QueueDescription | None:
    """Return the description of a queue; None if it does not exist."""
    return _run(url, describe)


def pause_queue(url: str, *, paused: bool) -> None:
    """Pause or resume delivery from a queue; it still accepts messages."""
    if not _run(url, partial(pause, paused=paused)):
        raise missing_queue(url)


def _run(url: str, verb: Callable[[RedisQueue], Verb[R]]) -> R:
    """Run a verb of the queue at a URL."""
    with RedisClient(url) as client:
        return run_sync(client.do, verb(RedisQueue(client.queue, SCRIPTS, 0, 0)))


def describe(queue: RedisQueue) -> Verb[QueueDescription | None]:
    found = yield queue.command("HMGET", queue.keys.key("queue"), *_DESCRIBED)
    version, notes, redelivery, dead, most, sources, paused, fair = found
    known = version or redelivery
    if known is None and not (yield from queue.exists()):
        return None
    return QueueDescription(
        version.decode() if version else "",
        msgspec.msgpack.decode(notes) if notes else {},
        dead.decode() if dead else None,
        int(most or 0),
        tuple(sources.decode().split(",")) if sources else (),
        paused is not None,
        fair is not None,
    )


def pause(queue: RedisQueue, *, paused: bool) -> Verb[bool]:
    """Pause or resume delivery; return False if the queue does not exist."""
    return bool((yield from queue.run("pause", "1" if paused else "0")))


def names_on(servers: Servers) -> Verb[set[str]]:
    """Return the names of all queues."""
    yield Call("-", 0, None, ["PING"])  # discovers the servers of the slots
    found = set()
    for slot in servers.slots():
        for key in (yield from _keys(slot, b"{queue:*}*:queue")):
            if match := _QUEUE.fullmatch(key):
                found.add((match[1] + match[2]).decode())
    return found


def _keys(slot: int, pattern: bytes) -> Verb[list[bytes]]:
    """Return the keys that match a pattern on the server of a slot."""
    found: list[bytes] = []
    cursor = b"0"
    while True:
        command = ["SCAN", cursor, "MATCH", pattern, "COUNT", _PAGE]
        cursor, keys = yield Call("-", slot, None, command)
        found += keys
        if cursor == b"0":
            return found


def delete(queue: RedisQueue, *, all_keys: bool = True) -> Verb[bool]:
    """Delete a queue; return whether it existed. Dead letters in its outbox still arrive.

    Without `all_keys`, leave keys that expire by themselves within minutes.
    """
    keys = queue.keys
    if not (yield from queue.exists()):
        return False
    yield from queue.carry()
    dead = yield queue.command("HGET", keys.key("queue"), "dead")
    if dead is not None:
        yield from queue.disown(dead.decode())
    yield queue.command("UNLINK", *keys.keys)
    if not all_keys:
        return True
    rest = yield from _keys(keys.slot, keys.key("*"))  # senders' sessions and deduplication ids
    for first in range(0, len(rest), _PAGE):
        yield queue.command("UNLINK", *rest[first : first + _PAGE])
    return True


def server_facts(url: str) -> list[dict[str, str]]:
    """Return the fields of INFO, two settings, and `time_ns` of each server with queues."""
    with RedisClient(url) as client:
        client.ask("PING", slot=0)  # discovers the servers of the slots
        return [_facts(partial(client.ask, slot=slot)) for slot in client.servers.slots() or [0]]


def _facts(ask: Callable[..., Any]) -> dict[str, str]:
    seconds, microseconds = ask("TIME")
    found = {"time_ns": str(int(seconds) * 10**9 + int(microseconds) * 1000)}
    for line in ask("INFO").decode("utf-8", "replace").splitlines():
        field, colon, value = line.partition(":")
        if colon:
            found[field] = value
    for setting in _CONFIG:
        try:
            reply = ask("CONFIG", "GET", setting)
        except MailboxError:  # managed services refuse it
            continue
        for value in reply.values() if isinstance(reply, dict) else reply[1:]:
            found[setting] = value.decode()
    return found
