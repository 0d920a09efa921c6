"""Messages into a queue: one, or many in as few calls as SQS's limits of a batch allow.

SQS takes each message of a batch or refuses it by itself. Those that it could not take for no
fault of ours are sent again; what is left in the end is reported one by one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pillarbox.core.errors import (
    MailboxConnectionError,
    MailboxError,
    MailboxFullError,
    UnknownOutcomeError,
)
from pillarbox.core.sqs_limits import BATCH_BYTES_MAX, BATCH_ENTRIES_MAX
from pillarbox.mailbox.runner import Verb
from pillarbox.mailbox.sqs.errors import BatchError, from_code
from pillarbox.mailbox.sqs.queue import SqsQueue
from pillarbox.mailbox.sqs.wire import Entry


def send_one(queue: SqsQueue, entry: Entry) -> Verb[str]:
    answer = yield from queue.ask("send_message", **entry)
    message_id: str = answer["MessageId"]
    return message_id


def send_many(queue: SqsQueue, entries: Sequence[tuple[Entry, int]]) -> Verb[list[str]]:
    """All of these, given with their sizes; their ids in order, or `BatchError`."""
    sent: dict[int, Any] = {}  # what SQS answered, by position
    failed: dict[int, MailboxError] = {}
    for batch in _batches(entries):
        if failed and queue.fifo:  # what comes later must not overtake what failed
            failed.update((position, _not_tried(queue)) for position in batch)
            continue
        try:
            asked = {position: entries[position][0] for position in batch}
            refused = yield from queue.ask_batch("send_message", asked, sent)
            for position, each in refused.items():
                text = each.get("Message", "")
                failed[position] = from_code(each["Code"], text, "send_message", queue.name)
        except (MailboxConnectionError, MailboxFullError, UnknownOutcomeError) as error:
            if not sent:
                raise
            failed.update((position, error) for position in batch if position not in sent)
    ids = {position: sent[position]["MessageId"] for position in sorted(sent)}
    if failed:
        raise BatchError(queue.name, ids, failed)
    return list(ids.values())


def _batches(entries: Sequence[tuple[Entry, int]]) -> Iterator[list[int]]:
    """The positions of the messages that go together."""
    batch: list[int] = []
    total = 0
    for position, (_, size) in enumerate(entries):
        if batch and (len(batch) == BATCH_ENTRIES_MAX or total + size > BATCH_BYTES_MAX):
            yield batch
            batch, total = [], 0
        batch.append(position)
        total += size
    if batch:
        yield batch


def _not_tried(queue: SqsQueue) -> MailboxError:
    return MailboxConnectionError(
        f"not sent to queue {queue.name!r}, because a message before it failed; send it again"
    )
