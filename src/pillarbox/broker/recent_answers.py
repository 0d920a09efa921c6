"""The last response of each channel of the private protocol, so that retries are idempotent.

A client has one request at a time on a channel. If its connection breaks, it retries with the
same number and gets the stored response. If there is none, the request never arrived, unless the
broker was restarted or had to drop responses: then the outcome is unknown, and is reported so.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final, NamedTuple

from pillarbox.broker.http import Confirmation
from pillarbox.core.errors import UnknownOutcomeError
from pillarbox.mailbox.broker import wire

_CHANNELS_MAX: Final = 100_000
_BYTES_MAX: Final = 64 << 20


class RecentAnswer(NamedTuple):
    """The last request of a channel, with its response."""

    number: int
    body: bytes
    confirmation: Confirmation | None
    harmless: bool  # idempotent, so its response may be dropped


class RecentAnswers:
    """The last responses of recently used channels."""

    def __init__(self, instance: str) -> None:
        self._instance = instance
        self._last: OrderedDict[bytes, RecentAnswer] = OrderedDict()
        self._bytes = 0
        self._forgot = False  # responses were dropped, so an unknown channel may be an old one

    def recall(self, asked: wire.Request) -> RecentAnswer | None:
        """Return the stored response of a retry; None for a request to execute."""
        last = self._last.get(asked.channel)
        if last is not None and asked.number <= last.number:
            return last
        if not asked.instance or _harmless(asked):
            return None
        if asked.instance == self._instance and (last is not None or not self._forgot):
            return None  # it never arrived: its response would have replaced the last one
        raise UnknownOutcomeError(
            "the broker was restarted, or forgot, and can't tell whether this was done before the "
            "connection broke: check the queue before you retry, or send with a deduplication_id"
        )

    def keep(
        self, asked: wire.Request, body: bytes, confirmation: Confirmation | None = None
    ) -> None:
        """Store the channel's last response."""
        self._drop(asked.channel)
        self._last[asked.channel] = RecentAnswer(asked.number, body, confirmation, _harmless(asked))
        self._bytes += len(body)
        while len(self._last) > _CHANNELS_MAX or self._bytes > _BYTES_MAX:
            oldest = next(iter(self._last))
            self._forgot = self._forgot or not self._last[oldest].harmless
            self._drop(oldest)

    def forget(self, asked: wire.Request) -> None:
        """Drop a response that was never sent and whose effects were undone."""
        last = self._last.get(asked.channel)
        if last is not None and last.number == asked.number:
            self._drop(asked.channel)

    def _drop(self, channel: bytes) -> None:
        last = self._last.pop(channel, None)
        if last is not None:
            self._bytes -= len(last.body)


def _harmless(asked: wire.Request) -> bool:
    return all(map(wire.repeatable, asked.commands))
