"""SendMessage, DeleteMessage and ChangeMessageVisibility, with code for their batch forms."""

from __future__ import annotations

import hashlib
import re
from typing import Any

from pillarbox.broker import content, shapes, translation
from pillarbox.broker.errors import invalid, invalid_value, missing
from pillarbox.broker.queue import Accepted, BrokerQueue, Draft
from pillarbox.broker.shapes import Attribute
from pillarbox.broker.sqs_message import md5_of, md5_of_attributes, sequence_number
from pillarbox.broker.sqs_request import Result, SqsRequest
from pillarbox.core.limits import SECOND_NS
from pillarbox.core.queue import Extra
from pillarbox.core.sqs_limits import DELAY_SECONDS_MAX, VISIBILITY_SECONDS_MAX

_TOKEN = re.compile(r"[!-~]{1,128}\Z")
NOT_HERE = "The request include parameter that is not valid for this queue type."
_NONE: dict[str, Attribute] = {}


def draft(request: SqsRequest, queue: BrokerQueue, params: shapes.SendMessage) -> Draft:
    """Validate a message, and return it ready to send."""
    text = params.MessageBody
    if not text:
        raise missing("MessageBody")
    if not text.isascii() or not text.isprintable():  # rare
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
        verdict = "cannot be validated" if isinstance(params, shapes.SendEntry) else "are invalid"
        raise invalid(
            f"One or more parameters {verdict}. Reason: Message must be shorter than "
            f"{queue.bytes_max} bytes."
        )
    if (notes := request.principal.notes) is not None:
        kept = notes if kept is None else {**kept, **notes}
    extra = None
    if queue.fifo:
        extra = _in_group(queue, params, body)
    elif params.MessageGroupId is not None or params.MessageDeduplicationId is not None:
        tenant = _tenant(params)
        if queue.fair:
            extra = Extra(tenant)
        else:  # a queue created by a mailbox, where a group would imply an order
            kept = {**(kept or {}), translation.GROUP_NOTE: tenant}
    return Draft(stored, size, _delay(queue, params.DelaySeconds), priority, kept, extra, checksums)


def _delay(queue: BrokerQueue, asked: int | None) -> int:
    if asked is None:
        return queue.delay_ns
    if not 0 <= asked <= DELAY_SECONDS_MAX:
        raise invalid_value("DelaySeconds", asked, "DelaySeconds must be >= 0 and <= 900.")
    if queue.fifo and asked:
        raise invalid_value("DelaySeconds", asked, NOT_HERE)
    return queue.delay_ns if queue.fifo else asked * SECOND_NS


def check_order(queue: BrokerQueue, params: shapes.SendMessage) -> None:
    """Check the parameters that a FIFO queue requires; without them a batch fails as a whole."""
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
    check_token("MessageGroupId", group)
    if name is None:
        name = hashlib.sha256(body).hexdigest()
    else:
        check_token("MessageDeduplicationId", name)
    return Extra(group, name)


def _tenant(params: shapes.SendMessage) -> str:
    """On a standard queue, a group is a tenant of a fair queue and implies no order."""
    if params.MessageDeduplicationId is not None:
        raise invalid_value("MessageDeduplicationId", params.MessageDeduplicationId, NOT_HERE)
    check_token("MessageGroupId", params.MessageGroupId or "")
    return params.MessageGroupId or ""


def check_token(parameter: str, value: str) -> None:
    if not _TOKEN.match(value):
        raise invalid_value(
            parameter,
            value,
            f"{parameter} can only include alphanumeric and punctuation characters. 1 to 128 in "
            "length.",
        )


def sent(queue: BrokerQueue, each: Draft, accepted: Accepted) -> dict[str, Any]:
    """Return the result for one message."""
    told: dict[str, Any] = {"MessageId": accepted.message_id, **each.checksums}
    if queue.fifo:
        told["SequenceNumber"] = sequence_number(accepted.sequence)
    return told


async def send_message(request: SqsRequest, params: shapes.SendMessage) -> Result:
    queue = await request.queue(params.QueueUrl)
    each = draft(request, queue, params)
    return sent(queue, each, await queue.send_one(each))


async def delete_message(request: SqsRequest, params: shapes.DeleteMessage) -> Result:
    queue = await request.queue(params.QueueUrl)
    await queue.delete_one(params.ReceiptHandle)
    return None


async def change_message_visibility(
    request: SqsRequest, params: shapes.ChangeMessageVisibility
) -> Result:
    queue = await request.queue(params.QueueUrl)
    if params.ReceiptHandle is None:
        raise missing("ReceiptHandle")
    await queue.change_visibility(params.ReceiptHandle, visibility(params.VisibilityTimeout))
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
