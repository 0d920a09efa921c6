"""Sends messages to a queue, in as few calls as the batch limits of SQS allow.

SQS accepts or refuses each message of a batch individually. Messages that failed on the server's
side are sent again; those that still fail are reported individually.
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
    """Send these entries, given with their sizes; return ids in order, or raise `BatchError`."""
    sent: dict[int, Any] = {}  # responses of SQS, by position
    failed: dict[int, MailboxError] = {}
    for batch in _batches(entries):
        if failed and queue.fifo:  # later messages must not overtake failed ones
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
    """Yield the positions of the messages of each batch."""
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
