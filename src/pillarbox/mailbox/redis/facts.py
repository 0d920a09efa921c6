"""What a Redis server says of itself, for `pillarbox doctor URL`."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from pillarbox.core.errors import MailboxError
from pillarbox.mailbox.redis.call import Call
from pillarbox.mailbox.redis.connection import RedisConnection
from pillarbox.mailbox.redis.options import RETRY_SECONDS, servers_of_url

_CONFIG = ("appendfsync", "min-replicas-to-write")


def server_facts(url: str) -> list[dict[str, str]]:
    """The fields of INFO, two settings, and `time_ns`, of each server that holds queues."""
    parts = urlsplit(url)
    named = parts.path.rpartition("/")[2]
    servers, name, _ = servers_of_url(url if named else f"{url.rstrip('/')}/-", asynchronous=False)
    connection = RedisConnection(servers, RETRY_SECONDS)
    try:
        connection.do(Call(name, 0, None, ["PING"]))  # then it is known who serves the slots
        return [_facts(connection, name, slot) for slot in servers.slots() or [0]]
    finally:
        connection.close()


def _facts(connection: RedisConnection, name: str, slot: int) -> dict[str, str]:
    def ask(*command: str) -> Any:
        return connection.do(Call(name, slot, None, list(command)))

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
