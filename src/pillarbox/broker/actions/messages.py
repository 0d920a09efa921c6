"""SendMessage, DeleteMessage, ChangeMessageVisibility, and what their batch forms share."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from typing import Any

from msgspec import Struct

from pillarbox.broker import content, shapes, translation
from pillarbox.broker.catalogue import BrokerQueue
from pillarbox.broker.errors import SqsError, invalid, invalid_value, missing, of_mailbox
from pillarbox.broker.md5 import md5_of, md5_of_attributes
from pillarbox.broker.shapes import Attribute
from pillarbox.broker.sqs_message import sequence_number
from pillarbox.broker.sqs_request import Result, SqsRequest
from pillarbox.core import decide
from pillarbox.core.errors import MailboxError
from pillarbox.core.events import Event, Removed, Scheduled, Sent
from pillarbox.core.limits import SECOND_NS
from pillarbox.core.queue import Extra, Lease, Queue, Record
from pillarbox.core.sqs_limits import DELAY_SECONDS_MAX, VISIBILITY_SECONDS_MAX
from pillarbox.tracing import accepting

_TOKEN = re.compile(r"[!-~]{1,128}\Z")
_NOT_HERE = "The request include parameter that is not valid for this queue type."
_NONE: dict[str, Attribute] = {}


class Draft(Struct, eq=False, gc=False):
    """A message that was checked, and is not sent yet."""

    body: bytes
    size: int
    delay: int
    priority: int
    attributes: dict[str, str] | None
    extra: Extra | None
    checksums: dict[str, str]


def draft(request: SqsRequest, queue: BrokerQueue, params: shapes.SendMessage) -> Draft:
    """Check everything about a message; what is left is to put it in."""
    text = params.MessageBody
    if not text:
        raise missing("MessageBody")
    if not text.isascii() or not text.isprintable():  # mostly it is both
        content.check_characters(text)
    body = text.encode()
    stored = body
    checksums = {"MD5OfMessageBody": md5_of(body)}
    attributes = params.MessageAttributes or _NONE
    size = len(body)
    kept: dict[str, str] | None = None
    priority = queue.priority
    if attributes:
        size += content.check_attributes(attributes)
        priority = content.priority_of(attributes, priority)
        stored, kept = translation.pack(text, body, attributes, priority)
        checksums["MD5OfMessageAttributes"] = md5_of_attributes(attributes)
    trace = request.http.headers.get("x-amzn-trace-id")
    if params.MessageSystemAttributes:
        content.check_system_attributes(params.MessageSystemAttributes)
        trace = params.MessageSystemAttributes[content.TRACE].StringValue or ""
        checksums["MD5OfMessageSystemAttributes"] = md5_of_attributes(
            params.MessageSystemAttributes
        )
    if trace is not None:
        kept = {**(kept or {}), translation.TRACE_NOTE: trace}
    if size > queue.bytes_max:
        raise invalid(
            "One or more parameters are invalid. Reason: Message must be shorter than "
            f"{queue.bytes_max} bytes."
        )
    if request.principal.name:
        kept = {**(kept or {}), translation.SENDER_NOTE: request.principal.name}
    extra = None
    if queue.fifo:
        extra = _in_group(queue, params, body)
    elif params.MessageGroupId is not None or params.MessageDeduplicationId is not None:
        tenant = _tenant(params)
        if queue.session.queue.settings.fair:
            extra = Extra(tenant)
        else:  # a queue of a mailbox, whose groups would keep an order
            kept = {**(kept or {}), translation.GROUP_NOTE: tenant}
    return Draft(stored, size, _delay(queue, params.DelaySeconds), priority, kept, extra, checksums)


def _delay(queue: BrokerQueue, asked: int | None) -> int:
    if asked is None:
        return queue.delay_ns
    if not 0 <= asked <= DELAY_SECONDS_MAX:
        raise invalid_value("DelaySeconds", asked, "DelaySeconds must be >= 0 and <= 900.")
    if queue.fifo and asked:
        raise invalid_value("DelaySeconds", asked, _NOT_HERE)
    return queue.delay_ns if queue.fifo else asked * SECOND_NS


def check_order(queue: BrokerQueue, params: shapes.SendMessage) -> None:
    """What a FIFO queue has to be told of every message; a batch that leaves it out fails whole."""
    if not params.MessageGroupId:
        raise missing("MessageGroupId")
    if params.MessageDeduplicationId is None and not queue.content_based:
        raise invalid(
            "The queue should either have ContentBasedDeduplication enabled or "
            "MessageDeduplicationId provided explicitly"
        )


def _in_group(queue: BrokerQueue, params: shapes.SendMessage, body: bytes) -> Extra:
    check_order(queue, params)
    group, name = str(params.MessageGroupId), params.MessageDeduplicationId
    _check_token("MessageGroupId", group)
    if name is None:
        name = hashlib.sha256(body).hexdigest()
    else:
        _check_token("MessageDeduplicationId", name)
    return Extra(group, name)


def _tenant(params: shapes.SendMessage) -> str:
    """On a standard queue a group orders nothing: it is a tenant, who gets a fair share."""
    if params.MessageDeduplicationId is not None:
        raise invalid_value("MessageDeduplicationId", params.MessageDeduplicationId, _NOT_HERE)
    _check_token("MessageGroupId", params.MessageGroupId or "")
    return params.MessageGroupId or ""


def _check_token(parameter: str, value: str) -> None:
    if not _TOKEN.match(value):
        raise invalid_value(
            parameter,
            value,
            f"{parameter} can only include alphanumeric and punctuation characters. 1 to 128 in "
            "length.",
        )


def put(queue: BrokerQueue, drafts: Sequence[Draft]) -> Sequence[int | SqsError]:
    """Put messages in, in one step for each delay that they have: their keys, or why not.

    What fails when there is only one step raises, since nothing was done.
    """
    if drafts and _are_alike(drafts):
        first = drafts[0]
        return queue.session.send([each.body for each in drafts], first.priority, first.delay)
    outcomes: dict[int, int | SqsError] = {}
    by_delay: dict[int, list[int]] = {}
    for at, each in enumerate(drafts):
        by_delay.setdefault(each.delay, []).append(at)
    for delay, places in by_delay.items():
        try:
            keys = _send(queue, [drafts[at] for at in places], delay)
            outcomes.update(zip(places, keys, strict=True))
        except MailboxError as error:
            if len(by_delay) == 1:
                raise
            outcomes.update(dict.fromkeys(places, of_mailbox(error)))
    return [outcomes[at] for at in range(len(drafts))]


def _are_alike(drafts: Sequence[Draft]) -> bool:
    """Whether they differ in nothing but their bodies, and have no more than these."""
    delay, priority = drafts[0].delay, drafts[0].priority
    for each in drafts:
        if each.attributes is not None or each.extra is not None:
            return False
        if each.delay != delay or each.priority != priority:
            return False
    return True


def _send(queue: BrokerQueue, drafts: list[Draft], delay: int) -> list[int]:
    store = queue.session.store
    records: list[Record] = []

    def happen(state: Queue, now: int) -> list[Event]:
        for key, each in zip(store.new_keys(now, len(drafts)), drafts, strict=True):
            records.append(Record(key, each.body, each.priority, 0, each.attributes, each.extra))
        fresh = decide.send(state, records, now)
        if not fresh:
            return []
        return [Scheduled(fresh, now + delay) if delay else Sent(fresh)]

    with ExitStack() as spans:
        for each in drafts:
            spans.enter_context(accepting(queue.name, each.attributes))
        queue.session.step(happen)
    if not queue.fifo:
        return [record.key for record in records]
    now = store.clock.now()
    return [decide.original(queue.session.queue, record, now) for record in records]


def sent(
    request: SqsRequest, queue: BrokerQueue, each: Draft, key: int, entry: str | None = None
) -> dict[str, Any]:
    """What the sender of a message is told; for a batch with the id of its entry."""
    told: dict[str, Any] = {} if entry is None else {"Id": entry}
    told["MessageId"] = request.broker.store.message_id(key)
    told.update(each.checksums)
    if queue.fifo:
        told["SequenceNumber"] = sequence_number(key)
    return told


def send_message(request: SqsRequest, params: shapes.SendMessage) -> Result:
    queue = request.queue(params.QueueUrl)
    each = draft(request, queue, params)
    attributes, extra, session = each.attributes, each.extra, queue.session
    plain = attributes is None and extra is None and not each.priority and not each.delay
    if plain and session.queue.settings.capacity is None:
        key = session.send_one(each.body)
    else:
        special = None if extra is None else lambda: extra
        with accepting(queue.name, attributes):
            (key,) = session.send((each.body,), each.priority, each.delay, attributes, special)
    return sent(request, queue, each, key)


# -- by receipt handle -------------------------------------------------------------------------


def lease_of(
    request: SqsRequest, queue: BrokerQueue, handle: str | None
) -> tuple[int, Lease | None]:
    """The key of the message that a handle is for, and its lease if that is still good."""
    if not handle:
        raise missing("ReceiptHandle")
    store = request.broker.store
    state = queue.session.queue
    lease = store.lease_of(state, handle)
    if lease is not None and lease.deadline > store.clock.now():
        return lease.record.key, lease
    delivery = store.delivery_of(state, handle)
    if delivery is None:
        raise SqsError(
            "ReceiptHandleIsInvalid",
            f'The input receipt handle "{handle}" is not a valid receipt handle.',
        )
    return delivery[0], None


def delete_stale(queue: BrokerQueue, keys: Iterable[int]) -> set[int]:
    """A standard queue deletes by old handles as well, in one step; the keys that it may not.

    On a FIFO queue such a handle has expired, unless there is nothing left to delete.
    """
    refused: set[int] = set()

    def happen(state: Queue, now: int) -> list[Removed]:
        found = decide.remove(state, list(keys))
        if queue.fifo:
            refused.update(found.keys)
        return [found] if found.keys and not queue.fifo else []

    queue.session.step(happen)
    return refused


def expired(handle: str | None) -> SqsError:
    return invalid_value("ReceiptHandle", handle, "The receipt handle has expired.")


def delete_message(request: SqsRequest, params: shapes.DeleteMessage) -> Result:
    queue = request.queue(params.QueueUrl)
    key, lease = lease_of(request, queue, params.ReceiptHandle)
    stale = lease is None or queue.session.acknowledge((lease,)) != [True]
    if stale and delete_stale(queue, (key,)):
        raise expired(params.ReceiptHandle)
    return None


def change_message_visibility(
    request: SqsRequest, params: shapes.ChangeMessageVisibility
) -> Result:
    queue = request.queue(params.QueueUrl)
    if params.ReceiptHandle is None:
        raise missing("ReceiptHandle")
    change(request, queue, params.ReceiptHandle, visibility(params.VisibilityTimeout))
    return None


def visibility(seconds: int | None) -> int:
    if seconds is None:
        raise missing("VisibilityTimeout")
    if not 0 <= seconds <= VISIBILITY_SECONDS_MAX:
        raise invalid_value(
            "VisibilityTimeout",
            seconds,
            "VisibilityTimeout must be an integer between 0 and 43200.",
        )
    return seconds


def change(request: SqsRequest, queue: BrokerQueue, handle: str | None, seconds: int) -> None:
    """Let the lease end so many seconds from now; at once for 0.

    On a standard queue any handle that the message ever had will do while the message exists.
    """
    key, lease = lease_of(request, queue, handle)
    if lease is None and not queue.fifo and queue.session.find(key) is not None:
        timeout = seconds * SECOND_NS
        queue.session.step(lambda state, now: decide.change_visibility(state, key, timeout, now))
        return
    if lease is not None:
        if seconds == 0:
            if queue.session.nack((lease,), 0)[0]:
                return
        else:
            limit = lease.leased_at + VISIBILITY_SECONDS_MAX * SECOND_NS
            if request.broker.store.clock.now() + seconds * SECOND_NS > limit:
                raise invalid_value(
                    "VisibilityTimeout",
                    seconds,
                    "Total VisibilityTimeout for the message is beyond the limit [43200 seconds].",
                )
            if queue.session.extend((lease,), seconds * SECOND_NS)[0]:
                return
    raise invalid_value(
        "ReceiptHandle",
        handle,
        "Message does not exist or is not available for visibility timeout change.",
    )
