"""ReceiveMessage: leases at once what is there, or parks until something is.

If the client hangs up before its answer was written, what it was given goes back to the front,
uncounted.
"""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from functools import partial
from typing import Any

from pillarbox.broker import shapes
from pillarbox.broker.catalogue import BrokerQueue
from pillarbox.broker.consumers import Consumer
from pillarbox.broker.errors import SqsError, invalid_value, no_such_queue
from pillarbox.broker.parked_polls import give_back, poll, read_bodies
from pillarbox.broker.retention import lease_fresh
from pillarbox.broker.sqs_message import NOTHING, SYSTEM_ATTRIBUTES, Wanted, sqs_message
from pillarbox.broker.sqs_request import Result, SqsRequest
from pillarbox.core.limits import SECOND_NS
from pillarbox.core.queue import Lease
from pillarbox.core.sqs_limits import RECEIVE_MESSAGES_MAX, VISIBILITY_SECONDS_MAX, WAIT_SECONDS_MAX

_EVERYTHING = ("All", "*", ".*")


def receive_message(
    request: SqsRequest, params: shapes.ReceiveMessage
) -> Result | Coroutine[Any, Any, Result]:
    broker = request.broker
    queue = request.queue(params.QueueUrl)
    count, timeout_ns, wait_ns = 1, queue.visibility_ns, queue.wait_ns
    if (given := params.MaxNumberOfMessages) is not None:
        count = _within("MaxNumberOfMessages", given, 1, RECEIVE_MESSAGES_MAX)
    if (given := params.VisibilityTimeout) is not None:
        timeout_ns = _within("VisibilityTimeout", given, 0, VISIBILITY_SECONDS_MAX) * SECOND_NS
    if (given := params.WaitTimeSeconds) is not None:
        wait_ns = _within("WaitTimeSeconds", given, 0, WAIT_SECONDS_MAX) * SECOND_NS
    wanted = _wanted(params)
    consumer = broker.consumers.of(request.http, queue.name, request.principal.name)
    attempt = _attempt(queue, params.ReceiveRequestAttemptId)
    if attempt is not None:
        again = queue.attempts.again(attempt, queue, timeout_ns)
        if again:
            return _deliver(request, queue, again, wanted, None)
    if queue.session.queue.in_flight >= broker.config.in_flight_max:
        if not wait_ns:
            raise SqsError("OverLimit", f"Too many messages are in flight in queue {queue.name}.")
        count = 0  # it waits, and gets nothing
    leases = lease_fresh(broker, queue, count, timeout_ns) if count else ()
    if leases:
        consumer.hold(leases)
        broker.metrics.delivered(leases)
        return _deliver(request, queue, leases, wanted, attempt)
    if not wait_ns or broker.closed:
        return {}
    return _poll(request, queue, consumer, count, timeout_ns, wait_ns, wanted, attempt)


async def _poll(
    request: SqsRequest,
    queue: BrokerQueue,
    consumer: Consumer,
    count: int,
    timeout_ns: int,
    wait_ns: int,
    wanted: Wanted,
    attempt: str | None,
) -> Result:
    broker = request.broker
    leases = await poll(broker, queue.session, consumer, count, timeout_ns, wait_ns)
    if broker.store.sessions.get(queue.name) is not queue.session:
        raise no_such_queue()
    if not leases:
        return {}
    broker.metrics.delivered(leases)
    result = _deliver(request, queue, leases, wanted, attempt)
    return await result if isinstance(result, Coroutine) else result


def _deliver(
    request: SqsRequest,
    queue: BrokerQueue,
    leases: Sequence[Lease],
    wanted: Wanted,
    attempt: str | None,
) -> Result | Coroutine[Any, Any, Result]:
    if attempt is not None:
        queue.attempts.keep(attempt, leases)
    request.unsent = partial(give_back, queue.session, leases)
    try:
        bodies = queue.session.bodies([lease.record for lease in leases], wait=False)
    except BlockingIOError:
        return _read(request, queue, leases, wanted)
    return _result(request, queue, leases, bodies, wanted)


async def _read(
    request: SqsRequest, queue: BrokerQueue, leases: Sequence[Lease], wanted: Wanted
) -> Result:
    bodies = await read_bodies(queue.session, leases)
    return _result(request, queue, leases, bodies, wanted)


def _result(
    request: SqsRequest,
    queue: BrokerQueue,
    leases: Sequence[Lease],
    bodies: Sequence[bytes | None],
    wanted: Wanted,
) -> Result:
    messages = []
    for lease, body in zip(leases, bodies, strict=True):
        if body is None:  # lost to damage of the disk; it must not block the rest
            queue.session.reject((lease,), "the body was lost")
        else:
            messages.append(sqs_message(request.broker, queue, lease, body, wanted))
    return {"Messages": messages} if messages else {}


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
        reason = "The request include parameter that is not valid for this queue type."
        raise invalid_value("ReceiveRequestAttemptId", name, reason)
    if not name or len(name) > 128 or not name.isascii() or not name.isprintable():
        reason = "ReceiveRequestAttemptId can only include alphanumeric and punctuation characters. 1 to 128 in length."  # noqa: E501
        raise invalid_value("ReceiveRequestAttemptId", name, reason)
    return name
