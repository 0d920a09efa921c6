"""Receives deliveries from a queue and settles them.

SQS accepts an old receipt handle of a standard queue. We don't: a delivery has ended when its lease
has expired by this process's clock, or when it was settled; then SQS is not called.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any
from uuid import uuid4

from msgspec import Struct

from pillarbox.clock import Clock
from pillarbox.core.errors import ReceiptHandleExpiredError
from pillarbox.core.limits import SECOND_NS, VISIBILITY_SECONDS_MAX
from pillarbox.core.sqs_limits import BATCH_ENTRIES_MAX
from pillarbox.mailbox.runner import Verb
from pillarbox.mailbox.sqs.errors import from_code, says_stale
from pillarbox.mailbox.sqs.queue import SqsQueue
from pillarbox.mailbox.sqs.wire import Entry
from pillarbox.mailbox.verbs import in_pages

_settling = threading.RLock()  # held for a few instructions without calls


class Delivery(Struct, eq=False):
    """One delivery. It can be settled once, while its lease lasts."""

    message: Entry
    received_at: int
    deadline: int
    _over: bool = False

    @property
    def id(self) -> str:
        message_id: str = self.message["MessageId"]
        return message_id

    @property
    def handle(self) -> str:
        handle: str = self.message["ReceiptHandle"]
        return handle

    @property
    def count(self) -> int:
        return int(self.message.get("Attributes", {}).get("ApproximateReceiveCount", 1))

    def alive(self, now: int) -> bool:
        return not self._over and now < self.deadline

    def claim(self, now: int) -> bool:
        """Return True to the one caller that may settle it."""
        with _settling:
            alive = not self._over and now < self.deadline
            self._over = self._over or alive
        return alive

    def reopen(self) -> None:
        """Allow another attempt after it could not be settled."""
        self._over = False

    def longest(self, now: int) -> int:
        """Return the longest visibility timeout left: SQS allows 12 hours from the receive."""
        return max(0, VISIBILITY_SECONDS_MAX - 1 - (now - self.received_at) // SECOND_NS)


def take(
    queue: SqsQueue,
    clock: Clock,
    count: int,
    lease_seconds: int,
    wait_seconds: int,
    owner: Any = None,
) -> Verb[list[Delivery]]:
    """Receive up to ten deliveries in one call. A wait ends when the owner is closed."""
    asked_at = clock.now()
    # A retried receive from a FIFO queue returns the messages of the lost response.
    attempt: dict[str, Any] = {"ReceiveRequestAttemptId": uuid4().hex} if queue.fifo else {}
    answer = yield from queue.ask(
        "receive_message",
        owner=owner if wait_seconds else None,
        MaxNumberOfMessages=min(count, BATCH_ENTRIES_MAX),
        VisibilityTimeout=lease_seconds,
        WaitTimeSeconds=wait_seconds,
        MessageAttributeNames=["All"],
        MessageSystemAttributeNames=["All"],
        **attempt,
    )
    # A lease begins while the call lasts. Without a wait the beginning of the call is the safe
    # side; a long poll is served when it ends, but for the way back.
    began_at = clock.now() if wait_seconds else asked_at
    deadline = began_at + lease_seconds * SECOND_NS
    return [Delivery(message, began_at, deadline) for message in answer.get("Messages", [])]


def extend(
    queue: SqsQueue, clock: Clock, deliveries: Sequence[Delivery], seconds: int
) -> Verb[list[bool]]:
    """Set the end of these leases to `seconds` from now, at most 12 hours after the receive.

    Claims nothing: the holder may settle a message while its lease is being extended.
    """
    now = clock.now()
    alive = list(dict.fromkeys(each for each in deliveries if each.alive(now)))
    done: set[Delivery] = set()
    for part in in_pages(alive, BATCH_ENTRIES_MAX):
        extended = yield from _ask(queue, "change_message_visibility", part, now, seconds)
        for delivery in extended:
            delivery.deadline = now + min(seconds, delivery.longest(now)) * SECOND_NS
        done |= extended
    answers = []
    for delivery in deliveries:
        answers.append(delivery in done)
        done.discard(delivery)  # so that a duplicate counts once
    return answers


def settle(
    queue: SqsQueue, clock: Clock, deliveries: Sequence[Delivery], seconds: int | None = None
) -> Verb[list[bool]]:
    """Delete these, or make them visible in `seconds`; False for each whose lease has ended."""
    operation = "delete_message" if seconds is None else "change_message_visibility"
    now = clock.now()
    claims = [delivery.claim(now) for delivery in deliveries]
    claimed = [each for each, mine in zip(deliveries, claims, strict=True) if mine]
    done: set[Delivery] = set()
    try:
        for part in in_pages(claimed, BATCH_ENTRIES_MAX):
            done |= yield from _ask(queue, operation, part, now, seconds)
            claimed = claimed[len(part) :]
    except BaseException:
        for delivery in claimed:
            delivery.reopen()
        raise
    return [mine and each in done for each, mine in zip(deliveries, claims, strict=True)]


def _ask(
    queue: SqsQueue,
    operation: str,
    deliveries: Sequence[Delivery],
    now: int,
    seconds: int | None,
) -> Verb[set[Delivery]]:
    """Call SQS for each, singly or as a batch; return the deliveries that succeeded."""
    entries: list[Entry] = [{"ReceiptHandle": each.handle} for each in deliveries]
    if seconds is not None:
        for entry, each in zip(entries, deliveries, strict=True):
            entry["VisibilityTimeout"] = min(seconds, each.longest(now))
    if len(entries) == 1:
        try:
            yield from queue.ask(operation, **entries[0])
        except ReceiptHandleExpiredError:
            return set()
        return set(deliveries)
    done: dict[int, Any] = {}
    refused = yield from queue.ask_batch(operation, dict(enumerate(entries)), done)
    for each in refused.values():
        if not says_stale(each):
            raise from_code(each["Code"], each.get("Message", ""), operation, queue.name)
    return {deliveries[position] for position in done}
