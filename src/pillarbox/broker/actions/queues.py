"""Actions on queues: create, delete, list, look up, attributes, purge."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Sequence

import msgspec

from pillarbox.broker import attributes as names
from pillarbox.broker import shapes
from pillarbox.broker.actions.permissions import check_tags
from pillarbox.broker.errors import SqsError, invalid, missing, no_such_queue
from pillarbox.broker.queue import BrokerQueue
from pillarbox.broker.queue_names import FIFO_SUFFIX, is_account
from pillarbox.broker.sqs_request import Result, SqsRequest
from pillarbox.core.sqs_limits import QUEUES_LISTED_MAX

_NAME = re.compile(r"[A-Za-z0-9_-]{1,80}\Z")
_BAD_NAME = "Can only include alphanumeric characters, hyphens, or underscores. 1 to 80 in length"
_BAD_FIFO_NAME = "The name of a FIFO queue can only include alphanumeric characters, hyphens, or underscores, must end with .fifo suffix and be 1 to 80 in length"  # fmt: skip  # noqa: E501


async def create_queue(request: SqsRequest, params: shapes.CreateQueue) -> Result:
    name = params.QueueName
    if name is None:
        raise missing("QueueName")
    if not name:
        raise invalid("Queue name cannot be empty")
    given = params.Attributes or {}
    fifo = "FifoQueue" in given
    given = names.checked(given, fifo=fifo or name.endswith(FIFO_SUFFIX))
    stem = name.removesuffix(FIFO_SUFFIX) if fifo else name
    suffixed = not fifo or name.endswith(FIFO_SUFFIX)
    if not _NAME.match(stem) or len(name) > 80 or not suffixed:
        raise invalid(_BAD_FIFO_NAME if fifo else _BAD_NAME)
    kept = names.merged({}, given)
    tags = {**(params.tags or {}), **(params.Tags or {})}
    check_tags(name, tags, {})
    queues = request.broker.queues
    full_name = request.namespace + name
    existing = await queues.find(full_name)
    if existing is not None:
        _refuse_if_different(existing, given)
        return {"QueueUrl": request.url_of(full_name)}
    if await queues.dropped_recently(full_name):
        seconds = request.broker.config.recreate_after_seconds
        raise SqsError(
            "QueueDeletedRecently",
            f"You must wait {seconds} seconds after deleting a queue before you can create "
            "another with the same name.",
        )
    notes = {"attributes": kept, "tags": tags}
    await queues.create(full_name, notes)
    return {"QueueUrl": request.url_of(full_name)}


def _refuse_if_different(queue: BrokerQueue, given: dict[str, str]) -> None:
    """Raise if the queue exists with other values of the given attributes."""
    known = queue.attributes()
    for name, value in given.items():
        if known.get(name, "") != value:
            raise SqsError(
                "QueueNameExists",
                "A queue already exists with the same name and a different value for attribute "
                f"{name}",
            )


async def delete_queue(request: SqsRequest, params: shapes.DeleteQueue) -> Result:
    queue = await request.queue(params.QueueUrl, fresh=True)
    await request.broker.queues.drop(queue)
    return None


async def list_queues(request: SqsRequest, params: shapes.ListQueues) -> Result:
    namespace = request.namespace
    prefix = namespace + (params.QueueNamePrefix or "")
    found = sorted(
        name
        for name in await request.broker.queues.names()
        if name.startswith(prefix)
        and (namespace or ":" not in name)
        and request.principal.may(request.action, name)
    )
    if params.NextToken and params.MaxResults is None:
        raise invalid("MaxResults is a mandatory parameter when you provide a value for NextToken.")
    shown, token = page(found, params.MaxResults, params.NextToken)
    urls = [request.url_of(name) for name in shown]
    return {**({"QueueUrls": urls} if urls else {}), **token}


def page(
    found: Sequence[str], most: int | None, token: str | None
) -> tuple[Sequence[str], dict[str, str]]:
    """Return one page of a list; a token names the last element of the previous page."""
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


async def get_queue_url(request: SqsRequest, params: shapes.GetQueueUrl) -> Result:
    if not params.QueueName:
        raise missing("QueueName")
    owner = params.QueueOwnerAWSAccountId or request.principal.account
    if not is_account(owner) or "/" in params.QueueName:
        raise no_such_queue()
    queue = await request.queue(f"{owner}/{params.QueueName}", fresh=True)
    return {"QueueUrl": request.url_of(queue.name)}


async def get_queue_attributes(request: SqsRequest, params: shapes.GetQueueAttributes) -> Result:
    queue = await request.queue(params.QueueUrl, fresh=True)
    wanted = set(params.AttributeNames or ())
    for name in wanted - names.SETTABLE - set(names.COMPUTED) - {"All"}:
        raise names.unknown(name)
    if not wanted:
        return {}
    known = {**await _computed(request, queue), **queue.attributes()}
    if queue.dead_letters is not None and "RedrivePolicy" not in known:  # the broker's own
        target, most = queue.dead_letters
        arn = request.broker.names.arn(target)
        policy = {"deadLetterTargetArn": arn, "maxReceiveCount": most}
        known["RedrivePolicy"] = msgspec.json.encode(policy).decode()
    found = {n: value for n, value in known.items() if "All" in wanted or n in wanted}
    return {"Attributes": found} if found else {}


async def _computed(request: SqsRequest, queue: BrokerQueue) -> dict[str, str]:
    stats = await queue.stats()
    values = (
        request.broker.names.arn(queue.name),
        stats.ready,
        stats.in_flight,
        stats.scheduled,
        queue.created,
        queue.modified,
    )
    return dict(zip(names.COMPUTED, map(str, values), strict=True))


async def set_queue_attributes(request: SqsRequest, params: shapes.SetQueueAttributes) -> Result:
    queue = await request.queue(params.QueueUrl, fresh=True)
    if not params.Attributes:
        raise missing("Attribute.Name")
    changes = dict(params.Attributes)
    if queue.fifo and changes.pop("FifoQueue", "true").lower() != "true":
        raise names.bad_value("FifoQueue", "Modifying queue type is not supported.")
    kept = names.merged(queue.given, names.checked(changes, fifo=queue.fifo))
    ours = "RedrivePolicy" in changes
    await request.broker.queues.change(queue, take_over=ours, attributes=kept)
    return None


async def purge_queue(request: SqsRequest, params: shapes.PurgeQueue) -> Result:
    queue = await request.queue(params.QueueUrl)
    await queue.purge(request.broker.config.purge_interval_seconds)
    return None


async def list_dead_letter_source_queues(
    request: SqsRequest, params: shapes.ListDeadLetterSourceQueues
) -> Result:
    queue = await request.queue(params.QueueUrl, fresh=True)
    sources = await request.broker.queues.sources_of(queue)
    found = [name for name in sources if request.principal.may("ListQueues", name)]
    shown, token = page(found, params.MaxResults, params.NextToken)
    return {"queueUrls": [request.url_of(name) for name in shown], **token}
