"""Queues: create, delete, list, look up, their attributes, purge."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Sequence

import msgspec

from pillarbox.broker import attributes as names
from pillarbox.broker import shapes
from pillarbox.broker.actions.permissions import check_tags
from pillarbox.broker.call import Call, Result
from pillarbox.broker.catalogue import FIFO_SUFFIX, BrokerQueue
from pillarbox.broker.errors import SqsError, invalid, missing
from pillarbox.core.limits import SECOND_NS
from pillarbox.core.sqs_limits import QUEUES_LISTED_MAX

_NAME = re.compile(r"[A-Za-z0-9_-]{1,80}\Z")
_BAD_NAME = "Can only include alphanumeric characters, hyphens, or underscores. 1 to 80 in length"


def create_queue(call: Call, ask: shapes.CreateQueue) -> Result:
    name = ask.QueueName
    if name is None:
        raise missing("QueueName")
    if not name:
        raise invalid("Queue name cannot be empty")
    given = ask.Attributes or {}
    fifo = "FifoQueue" in given
    given = names.checked(given, fifo=fifo or name.endswith(FIFO_SUFFIX))
    if fifo and not name.endswith(FIFO_SUFFIX):
        raise invalid("The name of a FIFO queue can only include alphanumeric characters, hyphens, or underscores, must end with .fifo suffix and be 1 to 80 in length")  # fmt: skip  # noqa: E501
    stem = name.removesuffix(FIFO_SUFFIX) if fifo else name
    if not _NAME.match(stem) or len(name) > 80:
        raise invalid(_BAD_NAME)
    names.check_encryption(given)
    names.check_throughput(given)
    tags = {**(ask.tags or {}), **(ask.Tags or {})}
    check_tags(name, tags, {})
    catalogue = call.broker.catalogue
    existing = catalogue.find(name)
    if existing is not None:
        _refuse_if_different(existing, given)
        return {"QueueUrl": call.url_of(name)}
    if catalogue.dropped_recently(name):
        seconds = call.broker.config.recreate_after_seconds
        raise SqsError(
            "QueueDeletedRecently",
            f"You must wait {seconds} seconds after deleting a queue before you can create "
            "another with the same name.",
        )
    notes = {"attributes": given, "tags": tags}
    catalogue.create(name, notes, call.broker.now_seconds())
    call.broker.flush()
    return {"QueueUrl": call.url_of(name)}


def _refuse_if_different(queue: BrokerQueue, given: dict[str, str]) -> None:
    """Only what was given is compared: creating a queue again is no change."""
    known = queue.attributes()
    for name, value in given.items():
        if known.get(name, "") != value:
            raise SqsError(
                "QueueNameExists",
                "A queue already exists with the same name and a different value for attribute "
                f"{name}",
            )


def delete_queue(call: Call, ask: shapes.DeleteQueue) -> Result:
    queue = call.queue(ask.QueueUrl)
    call.broker.catalogue.drop(queue)
    return None


def list_queues(call: Call, ask: shapes.ListQueues) -> Result:
    prefix = ask.QueueNamePrefix or ""
    found = sorted(
        name
        for name in call.broker.store.sessions
        if name.startswith(prefix) and call.principal.may(call.action, name)
    )
    shown, token = page(found, ask.MaxResults, ask.NextToken)
    urls = [call.url_of(name) for name in shown]
    return {**({"QueueUrls": urls} if urls else {}), **token}


def page(
    found: Sequence[str], most: int | None, token: str | None
) -> tuple[Sequence[str], dict[str, str]]:
    """A part of a long answer; a token names the last one that was told."""
    if most is not None and not 1 <= most <= QUEUES_LISTED_MAX:
        raise invalid(
            "Value for parameter MaxResults is invalid. Reason: MaxResults must be an integer "
            f"between 1 and {QUEUES_LISTED_MAX}."
        )
    start = 0
    if token:
        try:
            last = base64.b64decode(token, validate=True).decode()
        except (binascii.Error, ValueError):
            raise invalid("Invalid or expired next token.") from None
        start = sum(1 for name in found if name <= last)
    shown = found[start : start + (most or QUEUES_LISTED_MAX)]
    more = most is not None and start + len(shown) < len(found)
    if not more:
        return shown, {}
    return shown, {"NextToken": base64.b64encode(shown[-1].encode()).decode()}


def get_queue_url(call: Call, ask: shapes.GetQueueUrl) -> Result:
    if not ask.QueueName:
        raise missing("QueueName")
    owner = ask.QueueOwnerAWSAccountId
    if owner and owner != call.broker.config.account:
        raise SqsError("QueueDoesNotExist", "The specified queue does not exist.")
    queue = call.broker.catalogue.get(ask.QueueName)
    return {"QueueUrl": call.url_of(queue.name)}


def get_queue_attributes(call: Call, ask: shapes.GetQueueAttributes) -> Result:
    queue = call.queue(ask.QueueUrl)
    wanted = set(ask.AttributeNames or ())
    for name in wanted - names.SETTABLE - set(names.COMPUTED) - {"All"}:
        raise names.unknown(name)
    if not wanted:
        return {}
    known = {**_computed(call, queue), **queue.attributes()}
    if queue.session.dead is not None and "RedrivePolicy" not in known:  # the broker's own
        target = call.broker.catalogue.arn(queue.session.dead.queue.name)
        most = queue.session.queue.settings.max_deliveries
        policy = {"deadLetterTargetArn": target, "maxReceiveCount": most}
        known["RedrivePolicy"] = msgspec.json.encode(policy).decode()
    found = {n: value for n, value in known.items() if "All" in wanted or n in wanted}
    return {"Attributes": found} if found else {}


def _computed(call: Call, queue: BrokerQueue) -> dict[str, str]:
    ready, scheduled, in_flight, _, _ = queue.session.counts()
    values = (
        call.broker.catalogue.arn(queue.name),
        ready,
        in_flight,
        scheduled,
        queue.created,
        queue.modified,
    )
    return dict(zip(names.COMPUTED, map(str, values), strict=True))


def set_queue_attributes(call: Call, ask: shapes.SetQueueAttributes) -> Result:
    queue = call.queue(ask.QueueUrl)
    if not ask.Attributes:
        raise missing("Attribute.Name")
    changes = dict(ask.Attributes)
    if queue.fifo and changes.pop("FifoQueue", "true").lower() != "true":
        raise names.bad_value("FifoQueue", "Modifying queue type is not supported.")
    kept = names.merged(queue.given, names.checked(changes, fifo=queue.fifo))
    ours = "RedrivePolicy" in changes
    now = call.broker.now_seconds()
    call.broker.catalogue.change(queue, now, take_over=ours, attributes=kept)
    call.broker.flush()
    return None


def purge_queue(call: Call, ask: shapes.PurgeQueue) -> Result:
    queue = call.queue(ask.QueueUrl)
    now = call.broker.store.clock.now()
    interval = call.broker.config.purge_interval_seconds
    if queue.purged_at is not None and now < queue.purged_at + interval * SECOND_NS:
        raise SqsError(
            "PurgeQueueInProgress",
            f"Only one PurgeQueue operation on {queue.name} is allowed every {interval} seconds.",
        )
    queue.session.purge()
    queue.purged_at = now
    return None


def list_dead_letter_source_queues(call: Call, ask: shapes.ListDeadLetterSourceQueues) -> Result:
    queue = call.queue(ask.QueueUrl)
    sources = call.broker.catalogue.sources_of(queue)
    found = [name for name in sources if call.principal.may("ListQueues", name)]
    shown, token = page(found, ask.MaxResults, ask.NextToken)
    return {"queueUrls": [call.url_of(name) for name in shown], **token}
