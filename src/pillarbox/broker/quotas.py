"""Quotas of keys: requests, messages and bytes sent per second.

A token bucket that holds one second's worth. A request needs a positive balance, not its full
cost, and may overdraw the bucket, so batches are never split; later requests wait for the rest.
"""

from __future__ import annotations

import time
from typing import Any, Final

from pillarbox.broker import shapes
from pillarbox.broker.config import Key
from pillarbox.broker.errors import SqsError
from pillarbox.mailbox.broker import wire

_NAMES: Final = ("requests_per_second", "messages_per_second", "bytes_per_second")


class Quota:
    """The remaining quota of one key."""

    def __init__(self, key: Key) -> None:
        self._key = key.id
        given = {name: getattr(key, name) for name in _NAMES}
        self.limits = {name: limit for name, limit in given.items() if limit is not None}
        self._left = dict(self.limits)
        self._at = time.monotonic()

    def charge(self, params: Any) -> None:
        """Count a request; if a quota is used up, raise RequestThrottled and count nothing.

        A key that has used up its quota of sends may still receive and delete.
        """
        now = time.monotonic()
        seconds, self._at = now - self._at, now
        costs = dict(zip(_NAMES, (1, *_sent(params)), strict=True))
        for name, limit in self.limits.items():
            self._left[name] = min(limit, self._left[name] + seconds * limit)
        for name, limit in self.limits.items():
            if costs[name] and self._left[name] <= 0:
                raise SqsError(
                    "RequestThrottled",
                    f"Key {self._key} has used up its quota ({name} = {limit:g}); try again later.",
                )
        for name in self.limits:
            self._left[name] -= costs[name]


def quota_of(key: Key | None) -> Quota | None:
    """Return the quota of a key; None if it is unlimited."""
    quota = None if key is None else Quota(key)
    return quota if quota is not None and quota.limits else None


def _sent(params: Any) -> tuple[int, int]:
    """Return the number of messages that a request sends, and their total size in bytes."""
    if isinstance(params, wire.Send):
        return len(params.bodies), sum(map(len, params.bodies))
    if isinstance(params, shapes.SendMessageBatch):
        entries = params.Entries or []
        return len(entries), sum(len((entry.MessageBody or "").encode()) for entry in entries)
    if isinstance(params, shapes.SendMessage):
        return 1, len((params.MessageBody or "").encode())
    return 0, 0
