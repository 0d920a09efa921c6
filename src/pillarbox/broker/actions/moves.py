"""StartMessageMoveTask, CancelMessageMoveTask, ListMessageMoveTasks."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

from pillarbox.broker import shapes
from pillarbox.broker.errors import SqsError, invalid, invalid_value, missing
from pillarbox.broker.moves import MoveTask, read_handle, task_handle
from pillarbox.broker.queue import BrokerQueue
from pillarbox.broker.sqs_request import Result, SqsRequest
from pillarbox.core.sqs_limits import MOVES_LISTED_MAX, MOVES_PER_SECOND_MAX


async def start_message_move_task(
    request: SqsRequest, params: shapes.StartMessageMoveTask
) -> Result:
    source = await _queue(request, "SourceArn", params.SourceArn)
    target = None
    if params.DestinationArn is not None:
        target = (await _queue(request, "DestinationArn", params.DestinationArn)).name
        if target == source.name:
            raise invalid("Source queue arn and destination queue arn cannot be the same.")
        if target.endswith(".fifo") != source.fifo:
            raise invalid("The source queue and destination queue must be of the same queue type.")
    rate = params.MaxNumberOfMessagesPerSecond
    if rate is not None and not 1 <= rate <= MOVES_PER_SECOND_MAX:
        reason = f"Must be between 1 and {MOVES_PER_SECOND_MAX}."
        raise invalid_value("MaxNumberOfMessagesPerSecond", rate, reason)
    if not await request.broker.queues.sources_of(source):
        raise invalid("Source queue must be configured as a Dead Letter Queue.")
    started = request.broker.now_seconds() * 1000
    waiting = (await source.stats()).ready
    key = request.principal.name
    task = MoveTask(str(uuid4()), source.name, target, rate, waiting, started, key=key)
    await request.broker.moves.start(task)
    return {"TaskHandle": _handle(request, task)}


async def cancel_message_move_task(
    request: SqsRequest, params: shapes.CancelMessageMoveTask
) -> Result:
    if not params.TaskHandle:
        raise missing("TaskHandle")
    known = read_handle(params.TaskHandle)
    if known is None:
        raise invalid("Value for parameter TaskHandle is invalid.")
    source = await _queue(request, "SourceArn", known[1])
    task = await request.broker.moves.cancel(source.name, known[0])
    return {"ApproximateNumberOfMessagesMoved": task.moved}


async def list_message_move_tasks(
    request: SqsRequest, params: shapes.ListMessageMoveTasks
) -> Result:
    source = await _queue(request, "SourceArn", params.SourceArn)
    most = params.MaxResults if params.MaxResults is not None else 1
    if not 1 <= most <= MOVES_LISTED_MAX:
        raise invalid_value("MaxResults", most, f"Must be between 1 and {MOVES_LISTED_MAX}.")
    tasks = (await request.broker.moves.tasks(source.name))[:most]
    return {"Results": [_told(request, task) for task in tasks]}


async def _queue(request: SqsRequest, parameter: str, arn: str | None) -> BrokerQueue:
    if arn is None:
        raise missing(parameter)
    if arn.count(":") != 5 or not arn.startswith("arn:"):
        form = "arn:<partition>:<service>:<region>:<account-id>:<resource-id>"
        raise invalid(f"You must use this format to specify the {parameter}: {form}")
    name = request.broker.names.by_arn(arn, request.namespace)
    queue = await request.broker.queues.find(name) if name is not None else None
    if queue is None:
        raise SqsError(
            "ResourceNotFoundException",
            f"The resource that you specified for the {parameter} parameter doesn't exist.",
        )
    return queue


def _handle(request: SqsRequest, task: MoveTask) -> str:
    return task_handle(task.id, request.broker.names.arn(task.source))


def _told(request: SqsRequest, task: MoveTask) -> dict[str, Any]:
    """Describe a task; with its handle only while it can be cancelled."""
    told: dict[str, Any] = {}
    if task.status == "RUNNING":
        told["TaskHandle"] = _handle(request, task)
    told["Status"] = task.status
    told["SourceArn"] = request.broker.names.arn(task.source)
    if task.target is not None:
        told["DestinationArn"] = request.broker.names.arn(task.target)
    if task.rate is not None:
        told["MaxNumberOfMessagesPerSecond"] = task.rate
    told["ApproximateNumberOfMessagesMoved"] = task.moved
    told["ApproximateNumberOfMessagesToMove"] = task.to_move
    if task.failure:
        told["FailureReason"] = task.failure
    told["StartedTimestamp"] = task.started_ms
    return told
