"""The batch forms: what is wrong with the batch fails it whole, the rest fails by entry."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

from pillarbox.broker import content, shapes
from pillarbox.broker.actions import messages
from pillarbox.broker.errors import SqsError, invalid, missing
from pillarbox.broker.sqs_request import Result, SqsRequest
from pillarbox.core.queue import Lease
from pillarbox.core.sqs_limits import BATCH_BYTES_MAX, BATCH_ENTRIES_MAX

_ID = re.compile(r"[A-Za-z0-9_-]{1,80}\Z")


class Entry(Protocol):
    Id: str | None


E = TypeVar("E", bound=Entry)


def checked(request: SqsRequest, entries: Sequence[E] | None) -> Sequence[E]:
    """The entries, if the batch as such is in order."""
    name = f"{request.action}RequestEntry"
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
    """Empty lists are left out, as SQS does."""
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


def send_message_batch(request: SqsRequest, params: shapes.SendMessageBatch) -> Result:
    queue = request.queue(params.QueueUrl)
    entries = checked(request, params.Entries)
    if queue.fifo:
        for entry in entries:
            if not entry.MessageGroupId:
                raise invalid("The request must contain the parameter MessageGroupId.")
            messages.check_order(queue, entry)
    accepted: list[shapes.SendEntry] = []
    drafts: list[messages.Draft] = []
    failed = []
    size = 0
    for entry in entries:
        try:
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
    for entry, each, key in zip(accepted, drafts, messages.put(queue, drafts), strict=True):
        if isinstance(key, SqsError):
            failed.append(failure(entry, key))
        else:
            successful.append(messages.sent(request, queue, each, key, entry.Id))
    return outcome(successful, failed)


def delete_message_batch(request: SqsRequest, params: shapes.DeleteMessageBatch) -> Result:
    """Those whose lease is good go in one step, then those with an old handle in another."""
    queue = request.queue(params.QueueUrl)
    found: list[tuple[shapes.DeleteEntry, int, Lease | None]] = []
    failed = []
    for entry in checked(request, params.Entries):
        try:
            key, lease = messages.lease_of(request, queue, entry.ReceiptHandle)
        except SqsError as error:
            failed.append(failure(entry, error))
        else:
            found.append((entry, key, lease))
    leases = [lease for _, _, lease in found if lease is not None]
    # A lease may have ended since, and one that is named twice ends with the first.
    ended = iter(queue.session.acknowledge(leases) if leases else ())
    stale = {str(x.Id): key for x, key, lease in found if lease is None or not next(ended)}
    refused = messages.delete_stale(queue, stale.values()) if stale else ()
    done = []
    for entry, key, _ in found:
        if str(entry.Id) in stale and key in refused:
            failed.append(failure(entry, messages.expired(entry.ReceiptHandle)))
        else:
            done.append({"Id": entry.Id})
    return outcome(done, failed)


def change_message_visibility_batch(
    request: SqsRequest, params: shapes.ChangeMessageVisibilityBatch
) -> Result:
    queue = request.queue(params.QueueUrl)

    def one(entry: shapes.ChangeEntry) -> None:
        seconds = messages.visibility(entry.VisibilityTimeout)
        messages.change(request, queue, entry.ReceiptHandle, seconds)

    return _each(checked(request, params.Entries), one)


def _each(entries: Sequence[E], one: Callable[[E], None]) -> Result:
    done, failed = [], []
    for entry in entries:
        try:
            one(entry)
            done.append({"Id": entry.Id})
        except SqsError as error:
            failed.append(failure(entry, error))
    return outcome(done, failed)
