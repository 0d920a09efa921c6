"""StartMessageMoveTask, CancelMessageMoveTask, ListMessageMoveTasks."""

from __future__ import annotations

import secrets
from typing import Any

from pillarbox.broker import shapes
from pillarbox.broker.errors import SqsError, invalid, invalid_value, missing
from pillarbox.broker.moves import MoveTask, read_handle, task_handle
from pillarbox.broker.sqs_request import Result, SqsRequest
from pillarbox.core.sqs_limits import MOVES_LISTED_MAX, MOVES_PER_SECOND_MAX


async def start_message_move_task(
    request: SqsRequest, params: shapes.StartMessageMoveTask
) -> Result:
    _refuse_if_shared(request)
    source = _queue(request, "SourceArn", params.SourceArn)
    target = None
    if params.DestinationArn is not None:
        target = _queue(request, "DestinationArn", params.DestinationArn)
        if target == source:
            raise invalid("Source queue arn and destination queue arn must not be the same.")
        if target.endswith(".fifo") != source.endswith(".fifo"):
            raise invalid("The source and the destination must be queues of the same type.")
    rate = params.MaxNumberOfMessagesPerSecond
    if rate is not None and not 1 <= rate <= MOVES_PER_SECOND_MAX:
        reason = f"Must be between 1 and {MOVES_PER_SECOND_MAX}, if provided."
        raise invalid_value("MaxNumberOfMessagesPerSecond", rate, reason)
    session = request.broker.store.sessions[source]
    if not session.queue.sources:
        raise invalid("Source queue must be configured as a Dead Letter Queue.")
    moves = request.broker.moves
    if moves.running(source) is not None:
        raise invalid(
            "There is already a task running. Only one active task is allowed for a source queue "
            "arn at a given time."
        )
    started = request.broker.now_seconds() * 1000
    waiting = session.counts()[0]
    key = request.principal.name
    task = MoveTask(secrets.token_hex(16), source, target, rate, waiting, started, key=key)
    moves.start(task)
    return {"TaskHandle": _handle(request, task)}


async def cancel_message_move_task(
    request: SqsRequest, params: shapes.CancelMessageMoveTask
) -> Result:
    _refuse_if_shared(request)
    if not params.TaskHandle:
        raise missing("TaskHandle")
    known = read_handle(params.TaskHandle)
    if known is None:
        raise invalid("Value for parameter TaskHandle is invalid.")
    name, source = known[0], request.namespace + known[1]
    if source not in request.broker.store.sessions:
        raise _no_such("SourceArn")
    task = request.broker.moves.running(source)
    if task is None or task.id != name:
        raise SqsError("ResourceNotFoundException", "Task does not exist.")
    request.broker.moves.cancel(task)
    return {"ApproximateNumberOfMessagesMoved": task.moved}


async def list_message_move_tasks(
    request: SqsRequest, params: shapes.ListMessageMoveTasks
) -> Result:
    _refuse_if_shared(request)
    source = _queue(request, "SourceArn", params.SourceArn)
    most = params.MaxResults if params.MaxResults is not None else 1
    if not 1 <= most <= MOVES_LISTED_MAX:
        raise invalid_value("MaxResults", most, f"Must be between 1 and {MOVES_LISTED_MAX}.")
    tasks = request.broker.moves.of(source)[:most]
    return {"Results": [_told(request, task) for task in tasks]} if tasks else {}


def _refuse_if_shared(request: SqsRequest) -> None:
    if request.broker.shared is not None:
        raise SqsError(
            "UnsupportedOperation",
            "Message move tasks are not supported while brokers share a store: use `pillarbox "
            "redrive URL`, with the URL of the dead-letter queue in the store.",
        )


def _queue(request: SqsRequest, parameter: str, arn: str | None) -> str:
    if not arn:
        raise missing(parameter)
    queue = request.broker.catalogue.by_arn(arn, request.namespace)
    if queue is None:
        raise _no_such(parameter)
    return queue.name


def _no_such(parameter: str) -> SqsError:
    return SqsError(
        "ResourceNotFoundException",
        f"The resource that you specified for the {parameter} parameter doesn't exist.",
    )


def _handle(request: SqsRequest, task: MoveTask) -> str:
    return task_handle(task.id, request.broker.catalogue.arn(task.source))


def _told(request: SqsRequest, task: MoveTask) -> dict[str, Any]:
    """A task's handle is told only while it can be cancelled."""
    told: dict[str, Any] = {}
    if task.status == "RUNNING":
        told["TaskHandle"] = _handle(request, task)
    told["Status"] = task.status
    told["SourceArn"] = request.broker.catalogue.arn(task.source)
    if task.target is not None:
        told["DestinationArn"] = request.broker.catalogue.arn(task.target)
    if task.rate is not None:
        told["MaxNumberOfMessagesPerSecond"] = task.rate
    told["ApproximateNumberOfMessagesMoved"] = task.moved
    told["ApproximateNumberOfMessagesToMove"] = task.to_move
    if task.failure:
        told["FailureReason"] = task.failure
    told["StartedTimestamp"] = task.started_ms
    return told
