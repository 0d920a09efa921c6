"""Dispatches SQS requests of both protocols to their actions."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Generator
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from pillarbox.broker import shapes, sqs_json, sqs_query, sts
from pillarbox.broker.access import Principal
from pillarbox.broker.actions import batches, messages, moves, permissions, queues, receive
from pillarbox.broker.cross_origin import may_be_browser
from pillarbox.broker.errors import SqsError
from pillarbox.broker.http import Answer, Request, Response
from pillarbox.broker.sigv4 import is_presigned, region_of
from pillarbox.broker.sqs_json import JsonFormat
from pillarbox.broker.sqs_query import QueryFormat
from pillarbox.broker.sqs_request import ResponseFormat, Result, SqsRequest
from pillarbox.core.errors import MailboxError
from pillarbox.mailbox.shared import StaleQueueError

if TYPE_CHECKING:
    from pillarbox.broker.server import Broker


class Action(NamedTuple):
    """An SQS action."""

    name: str
    shape: type[Any]
    decode: Callable[[bytes], Any]
    run: Callable[[SqsRequest, Any], Coroutine[Any, Any, Result]]
    writes: bool  # whether its response waits until its writes are confirmed
    is_of_queue: bool  # whether it may be posted to the URL of a queue


def _action(
    shape: type[Any], run: Callable[[SqsRequest, Any], Any], *, writes: bool = True
) -> Action:
    decode = msgspec.json.Decoder(shape).decode
    is_of_queue = issubclass(shape, shapes.OfQueue | shapes.GetQueueUrl)
    return Action(shape.__name__, shape, decode, run, writes, is_of_queue)


ACTIONS = {
    action.name: action
    for action in (
        _action(shapes.SendMessage, messages.send_message),
        _action(shapes.ReceiveMessage, receive.receive_message, writes=False),
        _action(shapes.DeleteMessage, messages.delete_message),
        _action(shapes.ChangeMessageVisibility, messages.change_message_visibility),
        _action(shapes.SendMessageBatch, batches.send_message_batch),
        _action(shapes.DeleteMessageBatch, batches.delete_message_batch),
        _action(shapes.ChangeMessageVisibilityBatch, batches.change_message_visibility_batch),
        _action(shapes.CreateQueue, queues.create_queue),
        _action(shapes.DeleteQueue, queues.delete_queue),
        _action(shapes.ListQueues, queues.list_queues, writes=False),
        _action(shapes.GetQueueUrl, queues.get_queue_url, writes=False),
        _action(shapes.GetQueueAttributes, queues.get_queue_attributes, writes=False),
        _action(shapes.SetQueueAttributes, queues.set_queue_attributes),
        _action(shapes.PurgeQueue, queues.purge_queue),
        _action(
            shapes.ListDeadLetterSourceQueues, queues.list_dead_letter_source_queues, writes=False
        ),
        _action(shapes.TagQueue, permissions.tag_queue),
        _action(shapes.UntagQueue, permissions.untag_queue),
        _action(shapes.ListQueueTags, permissions.list_queue_tags, writes=False),
        _action(shapes.AddPermission, permissions.add_permission),
        _action(shapes.RemovePermission, permissions.remove_permission),
        _action(shapes.StartMessageMoveTask, moves.start_message_move_task),
        _action(shapes.CancelMessageMoveTask, moves.cancel_message_move_task),
        _action(shapes.ListMessageMoveTasks, moves.list_message_move_tasks, writes=False),
    )
}
_BY_TARGET = {sqs_json.TARGET_PREFIX + name: action for name, action in ACTIONS.items()}
_JSON = JsonFormat()
_QUERY = QueryFormat()
_QUERY_AS_JSON = QueryFormat(as_json=True)


class _Rest:
    """The rest of a coroutine that has run up to its first await."""

    def __init__(self, running: Coroutine[Any, Any, Result], waits_for: Any) -> None:
        self._running, self._waits_for = running, waits_for

    def __await__(self) -> Generator[Any, Any, Result]:
        waits_for = self._waits_for
        try:
            while True:
                try:
                    told = yield waits_for
                except BaseException as error:  # noqa: BLE001 - for the coroutine to handle
                    waits_for = self._running.throw(error)
                else:
                    waits_for = self._running.send(told)
        except StopIteration as done:
            result: Result = done.value
            return result


class Sqs:
    """Answers requests of SQS clients."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._access = broker.access

    def handle(self, request: Request) -> Answer:
        target = request.headers.get("x-amz-target")
        if target is None:
            return self._query(request)
        action = _BY_TARGET.get(target)
        try:
            if action is None or request.method != "POST":
                raise SqsError("UnknownOperationException", f"There is no operation {target!r}.")
            principal = self._access.principal(request)
            params = action.decode(request.body or b"{}")
        except SqsError as error:
            return self._refuse(_JSON, error)
        except sqs_json.UNREADABLE as error:
            return self._refuse(_JSON, sqs_json.unreadable(error))
        request.body = b""  # free the memory during a long poll
        return self._run(request, _JSON, action, principal, params)

    def _query(self, request: Request) -> Answer:
        format_: ResponseFormat = _QUERY
        if request.headers.get("accept", "").startswith("application/json"):
            format_ = _QUERY_AS_JSON
        try:
            if request.method not in ("GET", "POST"):
                raise SqsError("UnknownOperationException", "Use GET or POST.")
            if sts.is_asked(request):
                return sts.caller_identity(self._broker, request)
            principal = self._access.principal(request)
            form = sqs_query.form_of(request)
            request.body = b""
            if "Action" not in form:
                self._broker.metrics.errors["UnknownOperationException"] += 1
                return sqs_query.unknown_operation(self._broker.next_request_id())
            action = ACTIONS.get(form["Action"])
            if action is None or (request.path != "/" and not action.is_of_queue):
                raise SqsError(
                    "InvalidAction",
                    f"The action {form['Action'][:80]} is not valid for this endpoint.",
                )
            if request.method == "GET" and not self._may_get(action, request):
                raise SqsError(
                    "AccessDenied", f"{action.name} changes something: use POST, or sign the GET."
                )
            params = sqs_query.parameters(form, action.shape)
        except SqsError as error:
            return self._refuse(format_, error)
        return self._run(request, format_, action, principal, params)

    def _may_get(self, action: Action, request: Request) -> bool:
        """Whether this action may be sent by GET.

        Any web page can make a browser send a GET, but not a signed one. Without keys, signatures
        are not verified: a page needs a preflight for the Authorization header, but can put
        anything into a query, so a signature there does not count if a browser may have sent it.
        """
        looks = not action.writes and action.shape is not shapes.ReceiveMessage
        if looks or not self._access.open_to_all:
            return True
        if request.headers.get("authorization", "").startswith("AWS4-HMAC-SHA256 "):
            return True
        return is_presigned(request) and not may_be_browser(request)

    def _run(
        self,
        http: Request,
        format_: ResponseFormat,
        action: Action,
        principal: Principal,
        params: Any,
    ) -> Answer:
        broker = self._broker
        broker.metrics.requests[action.name] += 1
        namespace = broker.names.namespace(region_of(http), principal.account)
        request = SqsRequest(broker, http, format_, action.name, principal, namespace)
        try:
            watched = broker.audit is not None or principal.quota is not None
            if watched or not principal.is_unlimited:
                broker.rights.check_sqs(request, params)
        except SqsError as error:
            return request.fail(error)
        if broker.shared is not None:
            later = self._until_current(request, action, params)
            return self._run_on(request, action, later, later)
        running = action.run(request, params)
        try:
            waits_for = running.send(None)
        except StopIteration as done:
            return request.succeed(done.value, writes=action.writes)
        except (SqsError, MailboxError) as error:
            return request.fail(error)
        return self._run_on(request, action, running, _Rest(running, waits_for))

    async def _until_current(self, request: SqsRequest, action: Action, params: Any) -> Result:
        """Run the action, again as long as its queue's cached attributes were stale."""
        while True:
            try:
                return await action.run(request, params)
            except StaleQueueError:
                request.unsent = None

    def _run_on(
        self,
        request: SqsRequest,
        action: Action,
        running: Coroutine[Any, Any, Result],
        rest: Awaitable[Result],
    ) -> asyncio.Task[Response]:
        """Continue the action as a task, which is cancelled if the client disconnects."""

        async def answer() -> Response:
            try:
                return request.succeed(await rest, writes=action.writes)
            except (SqsError, MailboxError) as error:
                if request.unsent is not None:
                    request.unsent()
                return request.fail(error)

        def done(task: asyncio.Task[Response]) -> None:
            if task.cancelled() or task.exception() is not None:
                running.close()
                if request.unsent is not None:
                    request.unsent()

        task = self._broker.loop.create_task(answer())
        task.add_done_callback(done)
        return task

    def _refuse(self, format_: ResponseFormat, error: SqsError) -> Response:
        self._broker.metrics.errors[error.kind.code] += 1
        return format_.error(error, self._broker.next_request_id())
