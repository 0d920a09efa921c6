"""ReceiveMessage, with long polling."""

from __future__ import annotations

from pillarbox.broker import shapes
from pillarbox.broker.actions.messages import NOT_HERE, check_token
from pillarbox.broker.errors import SqsError, invalid_value
from pillarbox.broker.queue import BrokerQueue
from pillarbox.broker.sqs_message import NOTHING, SYSTEM_ATTRIBUTES, Wanted, sqs_message
from pillarbox.broker.sqs_request import Result, SqsRequest
from pillarbox.core.limits import SECOND_NS
from pillarbox.core.sqs_limits import RECEIVE_MESSAGES_MAX, VISIBILITY_SECONDS_MAX, WAIT_SECONDS_MAX

_EVERYTHING = ("All", "*", ".*")


async def receive_message(request: SqsRequest, params: shapes.ReceiveMessage) -> Result:
    queue = await request.queue(params.QueueUrl)
    count, timeout_ns, wait_ns = 1, queue.visibility_ns, queue.wait_ns
    if (given := params.MaxNumberOfMessages) is not None:
        count = _within("MaxNumberOfMessages", given, 1, RECEIVE_MESSAGES_MAX)
    if (given := params.VisibilityTimeout) is not None:
        timeout_ns = _within("VisibilityTimeout", given, 0, VISIBILITY_SECONDS_MAX) * SECOND_NS
    if (given := params.WaitTimeSeconds) is not None:
        wait_ns = _within("WaitTimeSeconds", given, 0, WAIT_SECONDS_MAX) * SECOND_NS
    wanted = _wanted(params)
    attempt = _attempt(queue, params.ReceiveRequestAttemptId)
    deliveries = await queue.receive(request, count, timeout_ns, wait_ns, attempt)
    if not deliveries:
        return {}
    broker = request.broker
    return {"Messages": [sqs_message(broker, queue, each, wanted) for each in deliveries]}


def _wanted(params: shapes.ReceiveMessage) -> Wanted:
    old, new = params.AttributeNames, params.MessageSystemAttributeNames
    if not (old or new or params.MessageAttributeNames):
        return NOTHING
    system = frozenset((old or []) + (new or []))
    for name in system - SYSTEM_ATTRIBUTES:
        raise SqsError("InvalidAttributeName", f"Unknown Attribute {name}.")
    names = frozenset(params.MessageAttributeNames or ())
    prefixes = tuple(name[:-2] for name in names if name.endswith(".*"))
    return Wanted(system, names, prefixes, everything=not names.isdisjoint(_EVERYTHING))


def _within(parameter: str, value: int, least: int, most: int) -> int:
    if not least <= value <= most:
        reason = f"Must be between {least} and {most}, if provided."
        if parameter != "MaxNumberOfMessages":
            reason = f"Must be >= {least} and <= {most}, if provided."
        raise invalid_value(parameter, value, reason)
    return value


def _attempt(queue: BrokerQueue, name: str | None) -> str | None:
    if name is None:
        return None
    if not queue.fifo:
        raise invalid_value("ReceiveRequestAttemptId", name, NOT_HERE)
    check_token("ReceiveRequestAttemptId", name)
    return name
