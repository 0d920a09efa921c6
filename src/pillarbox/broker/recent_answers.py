"""What each channel of the private protocol was answered last, so that nothing is done twice.

A client has one request at a time on a channel. If its connection breaks it asks again, with
the same number: then the answer is here. If it is not here, the request never came, unless
this broker has started since, or had to forget; then nobody can know, and that is said.
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
    """The last request of a channel, and what it was answered."""

    number: int
    body: bytes
    confirmation: Confirmation | None
    harmless: bool  # it may be done twice, so it may be forgotten


class RecentAnswers:
    """The last answers of the channels that were heard of lately."""

    def __init__(self, instance: str) -> None:
        self._instance = instance
        self._last: OrderedDict[bytes, RecentAnswer] = OrderedDict()
        self._bytes = 0
        self._forgot = False  # a channel that is not here may have been

    def recall(self, asked: wire.Request) -> RecentAnswer | None:
        """The last answer, if this is no new request; None if it must be done."""
        last = self._last.get(asked.channel)
        if last is not None and asked.number <= last.number:
            return last
        if not asked.instance or _harmless(asked):
            return None
        if asked.instance == self._instance and not self._forgot:
            return None  # it never came
        raise UnknownOutcomeError(
            "the broker was restarted, or forgot, and can't tell whether this was done before the "
            "connection broke: check the queue before you retry, or send with a deduplication_id"
        )

    def keep(
        self, asked: wire.Request, body: bytes, confirmation: Confirmation | None = None
    ) -> None:
        """This is the channel's last answer now."""
        self._drop(asked.channel)
        self._last[asked.channel] = RecentAnswer(asked.number, body, confirmation, _harmless(asked))
        self._bytes += len(body)
        while len(self._last) > _CHANNELS_MAX or self._bytes > _BYTES_MAX:
            oldest = next(iter(self._last))
            self._forgot = self._forgot or not self._last[oldest].harmless
            self._drop(oldest)

    def forget(self, asked: wire.Request) -> None:
        """The answer was never sent, and what it told of has been undone."""
        last = self._last.get(asked.channel)
        if last is not None and last.number == asked.number:
            self._drop(asked.channel)

    def _drop(self, channel: bytes) -> None:
        last = self._last.pop(channel, None)
        if last is not None:
            self._bytes -= len(last.body)


def _harmless(asked: wire.Request) -> bool:
    return all(map(wire.repeatable, asked.commands))
