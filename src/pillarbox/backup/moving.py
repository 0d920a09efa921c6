"""Moves messages from one mailbox to another, on any two backends.

Each message is received, sent and then acknowledged, so none is lost. It is sent with a
deduplication id made of its own id: if the mover is killed in between, the message is received
again when its lease ends, and the target drops the copy if it comes within five minutes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from pillarbox.core.errors import InvalidParameterError
from pillarbox.mailbox.message import Message
from pillarbox.mailbox.protocol import Mailbox, SendOptions

BATCH = 100
LEASE_SECONDS = 60  # well within the five minutes for which a deduplication id is remembered


class Moved(NamedTuple):
    """What a move did."""

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
    """Sends to the target, with deduplication ids if it takes them."""

    def __init__(self, target: Mailbox[Any]) -> None:
        self._target = target
        self.deduplicates = True

    def send(self, messages: Sequence[Message[Any]]) -> None:
        for message in messages:
            options = _options(message)
            if self.deduplicates:
                options["deduplication_id"] = f"move-{message.id}"
            try:
                self._target.send(message.body, **options)
            except InvalidParameterError as error:
                if error.parameter != "deduplication_id":
                    raise
                self.deduplicates = False  # Amazon SQS knows them on FIFO queues only
                self._target.send(message.body, **_options(message))


def _options(message: Message[Any]) -> SendOptions:
    options: SendOptions = {"priority": message.priority, "attributes": message.attributes}
    if message.group is not None:
        options["group"] = message.group
    if message.reply_to is not None:
        options["reply_to"] = message.reply_to
    return options
