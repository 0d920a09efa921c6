"""Reads the status of a Redis server, for `pillarbox doctor URL`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from pillarbox.core.errors import MailboxError
from pillarbox.mailbox.redis.connection import RedisClient

_CONFIG = ("appendfsync", "min-replicas-to-write")


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
