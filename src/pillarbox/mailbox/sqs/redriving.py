"""Redrives dead letters to their source queues.

To move all of them, SQS runs a message move task. To move some, or on a server without such tasks,
each is received, sent and then deleted, so a crash in between duplicates a message but never loses
it. Either way SQS gives them new ids; Pillarbox's own broker keeps them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pillarbox.clock import Clock
from pillarbox.core.errors import MailboxError
from pillarbox.core.sqs_limits import BATCH_ENTRIES_MAX
from pillarbox.mailbox.runner import Verb
from pillarbox.mailbox.sqs.address import QueueAddress, from_arn
from pillarbox.mailbox.sqs.call import Pause, ask
from pillarbox.mailbox.sqs.errors import UnsupportedOperationError
from pillarbox.mailbox.sqs.queue import SqsQueue, url_of
from pillarbox.mailbox.sqs.receiving import Delivery, settle, take
from pillarbox.mailbox.sqs_form import ALONE

_LEASE_SECONDS = 120
_EMPTY_POLLS_MAX = 5  # a short poll may return nothing although messages are ready
_PAUSE_SECONDS = 0.02  # between two checks of a task; then doubled
_PAUSE_SECONDS_MAX = 2.0
_NO_SOURCE = "CouldNotDetermineMessageSource"  # the remaining messages are not dead letters


def move_all(queue: SqsQueue, clock: Clock, to: QueueAddress | None) -> Verb[int]:
    """Have SQS move all messages; return how many it moved."""
    found = yield from queue.attributes("QueueArn")
    target: dict[str, Any] = {}
    if to is not None:
        destination = SqsQueue(to)
        yield from destination.find()
        theirs = yield from destination.attributes("QueueArn")
        target = {"DestinationArn": theirs["QueueArn"]}
    try:
        yield from ask("start_message_move_task", SourceArn=found["QueueArn"], **target)
    except UnsupportedOperationError:
        return (yield from move_chosen(queue, clock, lambda delivery: True, to))
    return (yield from _end_of_task(queue, found["QueueArn"]))


def _end_of_task(queue: SqsQueue, arn: str) -> Verb[int]:
    wait_seconds = _PAUSE_SECONDS
    while True:
        answer = yield from ask("list_message_move_tasks", SourceArn=arn, MaxResults=1)
        task: dict[str, Any] = (answer.get("Results") or [{}])[0]
        if task.get("Status") not in ("RUNNING", "CANCELLING"):
            break
        yield Pause(wait_seconds)
        wait_seconds = min(2 * wait_seconds, _PAUSE_SECONDS_MAX)
    reason = task.get("FailureReason", "")
    if task.get("Status") == "FAILED" and _NO_SOURCE not in reason:
        raise MailboxError(
            f"SQS could not redrive the dead letters of queue {queue.name!r}: {reason}"
        )
    return int(task.get("ApproximateNumberOfMessagesMoved", 0))


def move_chosen(
    queue: SqsQueue, clock: Clock, chosen: Callable[[Delivery], bool], to: QueueAddress | None
) -> Verb[int]:
    """Move the ready dead letters that `chosen` accepts; return how many."""
    kept: list[Delivery] = []
    targets: dict[QueueAddress, SqsQueue] = {}
    moved = empty_handed = 0
    try:
        while empty_handed < _EMPTY_POLLS_MAX:
            found = yield from take(queue, clock, BATCH_ENTRIES_MAX, _LEASE_SECONDS, 0)
            for delivery in found:
                arn = delivery.message.get("Attributes", {}).get("DeadLetterQueueSourceArn")
                target = to or (None if arn is None else from_arn(arn))
                if target is None or not chosen(delivery):
                    kept.append(delivery)
                    continue
                if target not in targets:
                    targets[target] = SqsQueue(target)
                    targets[target].url = yield from url_of(target)
                yield from targets[target].send(_again(delivery.message, targets[target].fifo))
                yield from settle(queue, clock, [delivery])
                moved += 1
            if not found:
                empty_handed += 1
                if not (yield from queue.stats()).ready:
                    break
    finally:
        yield from settle(queue, clock, kept, 0)
    return moved


def _again(message: dict[str, Any], fifo: bool) -> dict[str, Any]:
    """Return the entry to send a received message again, with a new deduplication id."""
    entry = {"MessageBody": message["Body"]}
    if message.get("MessageAttributes"):
        entry["MessageAttributes"] = message["MessageAttributes"]
    if fifo:
        group = message.get("Attributes", {}).get("MessageGroupId")
        entry["MessageGroupId"] = group or ALONE + message["MessageId"]
        entry["MessageDeduplicationId"] = message["MessageId"]
    return entry
