"""Batch actions. An invalid batch fails as a whole; an invalid entry fails alone."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Protocol, TypeVar

from pillarbox.broker import content, shapes
from pillarbox.broker.actions import messages
from pillarbox.broker.errors import SqsError, invalid, missing
from pillarbox.broker.queue import Draft
from pillarbox.broker.sqs_request import Result, SqsRequest
from pillarbox.core.sqs_limits import BATCH_BYTES_MAX, BATCH_ENTRIES_MAX

_ID = re.compile(r"[A-Za-z0-9_-]{1,80}\Z")


class Entry(Protocol):
    Id: str | None


E = TypeVar("E", bound=Entry)


def checked(request: SqsRequest, entries: Sequence[E] | None) -> Sequence[E]:
    """Return the entries, or raise if the batch as such is invalid."""
    name = f"{request.action}RequestEntry"
    if entries is None:
        raise missing("Entries")
    if not entries:
        raise SqsError("EmptyBatchRequest", f"There should be at least one {name} in the request.")
    if len(entries) > BATCH_ENTRIES_MAX:
        raise SqsError(
            "TooManyEntriesInBatchRequest",
            f"Maximum number of entries per request are {BATCH_ENTRIES_MAX}. You have sent "
            f"{len(entries)}.",
        )
    seen: set[str] = set()
    for number, entry in enumerate(entries, 1):
        if entry.Id is None:
            raise missing(f"{name}.{number}.Id")
        if not _ID.match(entry.Id):
            raise SqsError(
                "InvalidBatchEntryId",
                "A batch entry id can only contain alphanumeric characters, hyphens and "
                "underscores. It can be at most 80 letters long.",
            )
        if entry.Id in seen:
            raise SqsError("BatchEntryIdsNotDistinct", f"Id {entry.Id} repeated.")
        seen.add(entry.Id)
    return entries


def outcome(successful: list[dict[str, Any]], failed: list[dict[str, Any]]) -> Result:
    """Return the result; like SQS, without empty lists."""
    return {
        **({"Successful": successful} if successful else {}),
        **({"Failed": failed} if failed else {}),
    }


def failure(entry: Entry, error: SqsError) -> dict[str, Any]:
    return {
        "Id": entry.Id,
        "SenderFault": error.is_senders,
        "Code": error.kind.code,
        "Message": error.message,
    }


async def send_message_batch(request: SqsRequest, params: shapes.SendMessageBatch) -> Result:
    queue = await request.queue(params.QueueUrl)
    entries = checked(request, params.Entries)
    if queue.fifo:
        for entry in entries:
            if not entry.MessageGroupId:
                raise invalid("The request must contain the parameter MessageGroupId.")
            messages.check_order(queue, entry)
    accepted: list[shapes.SendEntry] = []
    drafts: list[Draft] = []
    failed = []
    size = 0
    for number, entry in enumerate(entries, 1):
        try:
            if not entry.MessageBody:
                raise missing(f"SendMessageBatchRequestEntry.{number}.MessageBody")
            each = messages.draft(request, queue, entry)
        except SqsError as error:
            failed.append(failure(entry, error))
            size += content.size_of(entry)
            continue
        accepted.append(entry)
        drafts.append(each)
        size += each.size
    if size > BATCH_BYTES_MAX:
        raise SqsError(
            "BatchRequestTooLong",
            f"Batch requests cannot be longer than {BATCH_BYTES_MAX} bytes. You have sent "
            f"{size} bytes.",
        )
    successful = []
    outcomes = await queue.send(drafts) if drafts else ()
    for entry, each, kept in zip(accepted, drafts, outcomes, strict=True):
        if isinstance(kept, SqsError):
            failed.append(failure(entry, kept))
        else:
            successful.append({"Id": entry.Id, **messages.sent(queue, each, kept)})
    return outcome(successful, failed)


async def delete_message_batch(request: SqsRequest, params: shapes.DeleteMessageBatch) -> Result:
    queue = await request.queue(params.QueueUrl)
    entries = checked(request, params.Entries)
    errors = await queue.delete([entry.ReceiptHandle for entry in entries])
    return _by_entry(entries, errors)


async def change_message_visibility_batch(
    request: SqsRequest, params: shapes.ChangeMessageVisibilityBatch
) -> Result:
    queue = await request.queue(params.QueueUrl)
    entries = checked(request, params.Entries)
    errors: list[SqsError | None] = []
    for number, entry in enumerate(entries, 1):
        try:
            if entry.VisibilityTimeout is None:
                name = "ChangeMessageVisibilityBatchRequestEntry"
                raise missing(f"{name}.{number}.VisibilityTimeout")
            seconds = messages.visibility(entry.VisibilityTimeout)
            await queue.change_visibility(entry.ReceiptHandle, seconds)
            errors.append(None)
        except SqsError as error:
            errors.append(error)
    return _by_entry(entries, errors)


def _by_entry(entries: Sequence[E], errors: Sequence[SqsError | None]) -> Result:
    found = list(zip(entries, errors, strict=True))
    done = [{"Id": entry.Id} for entry, error in found if error is None]
    failed = [failure(entry, error) for entry, error in found if error is not None]
    return outcome(done, failed)
