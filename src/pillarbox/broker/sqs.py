"""The SQS face of the broker: tells the two protocols apart and answers in the one asked."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import msgspec

from pillarbox.broker import shapes, sqs_json, sqs_query, sts
from pillarbox.broker.actions import batches, messages, moves, permissions, queues, receive
from pillarbox.broker.call import Call, Wire
from pillarbox.broker.errors import SqsError, of_mailbox
from pillarbox.broker.http import Answer, Request, Response
from pillarbox.broker.sqs_json import JsonWire
from pillarbox.broker.sqs_query import QueryWire
from pillarbox.core.errors import MailboxError

if TYPE_CHECKING:
    from pillarbox.broker.server import Broker


class Action(NamedTuple):
    name: str
    shape: type[Any]
    decode: Callable[[bytes], Any]
    run: Callable[[Call, Any], Any]  # a result, or the future of an answer
    is_of_queue: bool  # whether it may be asked at the URL of a queue


def _action(shape: type[Any], run: Callable[[Call, Any], Any]) -> Action:
    decode = msgspec.json.Decoder(shape).decode
    return Action(shape.__name__, shape, decode, run, issubclass(shape, shapes.OfQueue))


ACTIONS = {
    action.name: action
    for action in (
        _action(shapes.SendMessage, messages.send_message),
        _action(shapes.ReceiveMessage, receive.receive_message),
        _action(shapes.DeleteMessage, messages.delete_message),
        _action(shapes.ChangeMessageVisibility, messages.change_message_visibility),
        _action(shapes.SendMessageBatch, batches.send_message_batch),
        _action(shapes.DeleteMessageBatch, batches.delete_message_batch),
        _action(shapes.ChangeMessageVisibilityBatch, batches.change_message_visibility_batch),
        _action(shapes.CreateQueue, queues.create_queue),
        _action(shapes.DeleteQueue, queues.delete_queue),
        _action(shapes.ListQueues, queues.list_queues),
        _action(shapes.GetQueueUrl, queues.get_queue_url),
        _action(shapes.GetQueueAttributes, queues.get_queue_attributes),
        _action(shapes.SetQueueAttributes, queues.set_queue_attributes),
        _action(shapes.PurgeQueue, queues.purge_queue),
        _action(shapes.ListDeadLetterSourceQueues, queues.list_dead_letter_source_queues),
        _action(shapes.TagQueue, permissions.tag_queue),
        _action(shapes.UntagQueue, permissions.untag_queue),
        _action(shapes.ListQueueTags, permissions.list_queue_tags),
        _action(shapes.AddPermission, permissions.add_permission),
        _action(shapes.RemovePermission, permissions.remove_permission),
        _action(shapes.StartMessageMoveTask, moves.start_message_move_task),
        _action(shapes.CancelMessageMoveTask, moves.cancel_message_move_task),
        _action(shapes.ListMessageMoveTasks, moves.list_message_move_tasks),
    )
}
_BY_TARGET = {sqs_json.TARGET_PREFIX + name: action for name, action in ACTIONS.items()}
_LOOKS = frozenset(
    (
        "GetQueueAttributes",
        "GetQueueUrl",
        "ListDeadLetterSourceQueues",
        "ListMessageMoveTasks",
        "ListQueues",
        "ListQueueTags",
    )
)
_JSON = JsonWire()
_QUERY = QueryWire()
_QUERY_AS_JSON = QueryWire(as_json=True)


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
            principal = self._access.principal(request, time.time())
            ask = action.decode(request.body or b"{}")
            request.body = b""  # a poll that waits keeps none
        except SqsError as error:
            return self._refused(_JSON, error)
        except sqs_json.UNREADABLE as error:
            return self._refused(_JSON, sqs_json.unreadable(error))
        return self._run(Call(self._broker, request, _JSON, action.name, principal), action, ask)

    def _query(self, request: Request) -> Answer:
        wire: Wire = _QUERY
        if request.headers.get("accept", "").startswith("application/json"):
            wire = _QUERY_AS_JSON
        try:
            if request.method not in ("GET", "POST"):
                raise SqsError("UnknownOperationException", "Use GET or POST.")
            if sts.is_asked(request):
                return sts.caller_identity(self._broker, request)
            principal = self._access.principal(request, time.time())
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
            if request.method == "GET" and not self._may_get(action.name, request):
                raise SqsError(
                    "AccessDenied", f"{action.name} changes something: use POST, or sign the GET."
                )
            ask = sqs_query.parameters(form, action.shape)
        except SqsError as error:
            return self._refused(wire, error)
        return self._run(Call(self._broker, request, wire, action.name, principal), action, ask)

    def _may_get(self, action: str, request: Request) -> bool:
        """Any web page can have a browser send a GET, as an image, but not a signed one.

        Without keys nobody checks signatures, so only one in the Authorization field counts: a
        page can put anything into a query, but can't set that field without asking us first.
        """
        signed = request.headers.get("authorization", "").startswith("AWS4-HMAC-SHA256 ")
        return action in _LOOKS or signed or not self._access.open_to_all

    def _run(self, call: Call, action: Action, ask: Any) -> Answer:
        self._broker.metrics.requests[action.name] += 1
        try:
            self._broker.rights.check_sqs(call, ask)
            result = action.run(call, ask)
        except SqsError as error:
            self._broker.written.clear()
            return call.fail(error)
        except MailboxError as error:
            self._broker.written.clear()
            return call.fail(of_mailbox(error))
        if result is None or result.__class__ is dict:
            return call.answer(result)
        return cast("Answer", result)

    def _refused(self, wire: Wire, error: SqsError) -> Response:
        self._broker.metrics.errors[error.kind.code] += 1
        return wire.error(error, self._broker.next_request_id())
