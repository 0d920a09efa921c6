"""Moves messages from one mailbox to another, on any two backends.

Each message is received, sent and then acknowledged, so none is lost. It is sent with a
deduplication id derived from its id: if the move is interrupted in between, the message is
received again when its lease ends, and the target drops the duplicate within five minutes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any, NamedTuple

from pillarbox.core.errors import InvalidParameterError
from pillarbox.mailbox.message import Message
from pillarbox.mailbox.protocol import BatchOptions, Mailbox

BATCH = 100
LEASE_SECONDS = 60  # well within the five minutes for which a deduplication id is remembered


class Moved(NamedTuple):
    """The result of a move."""

    messages: int
    deduplicated: bool  # whether the target drops a message that is sent twice


def move(
    source: Mailbox[Any],
    target: Mailbox[Any],
    *,
    limit: int | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Moved:
    """Move the messages that can be received now, in order."""
    done, total = 0, source.stats().ready
    sender = _Sender(target)
    while limit is None or done < limit:
        count = BATCH if limit is None else min(BATCH, limit - done)
        messages = source.receive(max_messages=count, visibility_timeout=LEASE_SECONDS)
        if not messages:
            break
        sender.send(messages)
        done += sum(source.acknowledge_many(messages))
        progress(done, max(total, done))
    return Moved(done, sender.deduplicates)


class _Sender:
    """Sends to the target: one by one with deduplication ids if supported, else in batches."""

    def __init__(self, target: Mailbox[Any]) -> None:
        self._target = target
        self.deduplicates = True

    def send(self, messages: Sequence[Message[Any]]) -> None:
        if self.deduplicates:
            messages = messages[self._send_each(messages) :]
        for options, alike in groupby(messages, _options):
            self._target.send_many([message.body for message in alike], **options)

    def _send_each(self, messages: Sequence[Message[Any]]) -> int:
        """Send one by one; return how many were sent before an id was refused."""
        for count, message in enumerate(messages):
            name = f"move-{message.id}"
            try:
                self._target.send(message.body, **_options(message), deduplication_id=name)
            except InvalidParameterError as error:
                if error.parameter != "deduplication_id":
                    raise
                self.deduplicates = False  # Amazon SQS supports ids only on FIFO queues
                return count
        return len(messages)


def _options(message: Message[Any]) -> BatchOptions:
    options: BatchOptions = {"priority": message.priority, "attributes": message.attributes}
    if message.group is not None:
        options["group"] = message.group
    if message.reply_to is not None:
        options["reply_to"] = message.reply_to
    return options
