"""Authorization: the rights that each request needs, in one table for both protocols.

A request is checked before any queue is looked up: each queue that it names, or that would get
messages, needs a right. An action without a row here can't run. A key without the right gets
AccessDenied whether or not the queue exists.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

from pillarbox.broker import audit, shapes
from pillarbox.broker.access import Principal
from pillarbox.broker.attributes import redrive_policy
from pillarbox.broker.errors import SqsError
from pillarbox.broker.moves import read_handle
from pillarbox.broker.queue_names import name_in, plain_name
from pillarbox.mailbox import sqs_form
from pillarbox.mailbox.answers import REPLY_TO
from pillarbox.mailbox.broker import wire

if TYPE_CHECKING:
    from pillarbox.broker.server import Broker
    from pillarbox.broker.sqs_request import SqsRequest

Needs = Iterator[tuple[str, str]]  # action and queue
_END_OF_NAME: Final = re.compile(r"[/:]")


class Rights:
    """Checks the rights of keys."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def check_sqs(self, request: SqsRequest, params: Any) -> None:
        """Raise AccessDenied unless the key has every right that this action needs."""
        if request.principal.quota is not None:
            request.principal.quota.charge(params)
        if request.action in audit.ACTIONS and self._broker.audit is not None:
            self._check_and_note(request.principal, SQS[type(params)](request, params), "sqs")
        elif not request.principal.is_unlimited:
            _check(request.principal, SQS[type(params)](request, params))

    def check_native(self, principal: Principal, command: wire.Command, queue: str) -> None:
        """As `check_sqs`, for a command of the private protocol."""
        if principal.quota is not None:
            principal.quota.charge(command)
        action, needs = NATIVE[type(command)]
        if action in audit.ACTIONS and self._broker.audit is not None:
            found = needs(self._broker, action, command, queue)
            self._check_and_note(principal, found, "pillarbox", _verb(command))
        elif not principal.is_unlimited:
            _check(principal, needs(self._broker, action, command, queue))

    def _check_and_note(
        self, principal: Principal, needs: Needs, by: str, verb: str | None = None
    ) -> None:
        """Check rights, and append an entry to the audit log for each administrative one.

        A `verb` is logged instead of the right, if it says more.
        """
        assert self._broker.audit is not None
        wanted: list[tuple[str, str]] = []
        refusal = None
        try:
            for need in needs:
                wanted.append(need)  # log those before an error too
        except SqsError as error:
            if not principal.is_unlimited:  # else the action itself reports the error
                refusal = error
        allowed = refusal is None and all(may(principal, *need) for need in wanted)
        for action, queue in wanted:
            if action in audit.ACTIONS:
                noted = verb or action
                self._broker.audit.note(principal.name, noted, queue, by=by, allowed=allowed)
        if refusal is not None:
            raise refusal
        _check(principal, iter(wanted))

    def check_move(self, principal: Principal, targets: Iterable[str]) -> None:
        """Check the right to move messages to these queues, which exist."""
        if not principal.is_unlimited:
            for target in targets:
                principal.check("SendMessage", target)


def _verb(command: wire.Command) -> str | None:
    """Return the audit log's name of a command without an SQS action, as in the dashboard."""
    if isinstance(command, wire.Pause):
        return "pause" if command.paused else "resume"
    return None


def _check(principal: Principal, needs: Needs) -> None:
    for action, queue in list(needs):  # evaluate all first: their own errors say more
        if not may(principal, action, queue):
            raise principal.denied(action, queue)


def may(principal: Principal, action: str, queue: str) -> bool:
    """Whether a key has a right; limited keys have none on other regions or accounts."""
    return principal.may(action, queue) and (":" not in queue or principal.is_unlimited)


def _into(broker: Broker, target: str) -> Needs:
    """The rights to send to a queue that is created if it does not exist."""
    yield "SendMessage", target
    if target not in broker.store.sessions:
        yield "CreateQueue", target


def _reply_to(value: str | None) -> Needs:
    """The replier uses its own key, so the requester must be allowed to send to this queue."""
    if value:
        yield "SendMessage", _END_OF_NAME.split(value)[-1]


# -- SQS -----------------------------------------------------------------------------------------


def _of_queue(request: SqsRequest, params: shapes.OfQueue) -> Needs:
    url = request.url_in(params.QueueUrl)
    if url:  # else the action reports the missing parameter
        yield request.action, name_in(url)


def _send(request: SqsRequest, params: shapes.SendMessage) -> Needs:
    yield from _of_queue(request, params)
    yield from _reply_of(params)


def _send_batch(request: SqsRequest, params: shapes.SendMessageBatch) -> Needs:
    yield from _of_queue(request, params)
    for entry in params.Entries or ():
        yield from _reply_of(entry)


def _reply_of(params: shapes.SendMessage) -> Needs:
    noted = (params.MessageAttributes or {}).get(sqs_form.REPLY_TO)
    yield from _reply_to(noted.StringValue if noted is not None else None)


def _create_queue(request: SqsRequest, params: shapes.CreateQueue) -> Needs:
    if params.QueueName:
        yield request.action, params.QueueName
    yield from _dead_letter_target(params.Attributes)


def _set_attributes(request: SqsRequest, params: shapes.SetQueueAttributes) -> Needs:
    yield from _of_queue(request, params)
    yield from _dead_letter_target(params.Attributes)


def _dead_letter_target(attributes: dict[str, str] | None) -> Needs:
    """The rights to use a queue as a dead-letter queue."""
    value = (attributes or {}).get("RedrivePolicy")
    if value:
        target = plain_name(redrive_policy(value).deadLetterTargetArn)
        yield "SendMessage", target
        yield "SetQueueAttributes", target


def _get_queue_url(request: SqsRequest, params: shapes.GetQueueUrl) -> Needs:
    if params.QueueName:
        yield request.action, params.QueueName


def _start_move(request: SqsRequest, params: shapes.StartMessageMoveTask) -> Needs:
    """Without a destination, the task checks the target of each message: see `check_move`."""
    yield from _of_source(request, params)
    if params.DestinationArn:
        yield "SendMessage", plain_name(params.DestinationArn)


def _of_source(
    request: SqsRequest, params: shapes.StartMessageMoveTask | shapes.ListMessageMoveTasks
) -> Needs:
    if params.SourceArn:
        yield request.action, plain_name(params.SourceArn)


def _cancel_move(request: SqsRequest, params: shapes.CancelMessageMoveTask) -> Needs:
    known = read_handle(params.TaskHandle or "")
    if known is not None:
        yield request.action, plain_name(known[1])


def _none(*_: object) -> Needs:
    """No rights: the action names no queue, and its result is filtered by the key's rights."""
    return iter(())


SQS: Final[dict[type[Any], Callable[[SqsRequest, Any], Needs]]] = {
    shapes.SendMessage: _send,
    shapes.SendMessageBatch: _send_batch,
    shapes.ReceiveMessage: _of_queue,
    shapes.DeleteMessage: _of_queue,
    shapes.DeleteMessageBatch: _of_queue,
    shapes.ChangeMessageVisibility: _of_queue,
    shapes.ChangeMessageVisibilityBatch: _of_queue,
    shapes.CreateQueue: _create_queue,
    shapes.DeleteQueue: _of_queue,
    shapes.ListQueues: _none,
    shapes.GetQueueUrl: _get_queue_url,
    shapes.GetQueueAttributes: _of_queue,
    shapes.SetQueueAttributes: _set_attributes,
    shapes.PurgeQueue: _of_queue,
    shapes.ListDeadLetterSourceQueues: _of_queue,
    shapes.TagQueue: _of_queue,
    shapes.UntagQueue: _of_queue,
    shapes.ListQueueTags: _of_queue,
    shapes.AddPermission: _of_queue,
    shapes.RemovePermission: _of_queue,
    shapes.StartMessageMoveTask: _start_move,
    shapes.CancelMessageMoveTask: _cancel_move,
    shapes.ListMessageMoveTasks: _of_source,
}

# -- the private protocol ------------------------------------------------------------------------


def _on_queue(broker: Broker, action: str, command: wire.Command, queue: str) -> Needs:
    yield action, queue


def _native_send(broker: Broker, action: str, command: wire.Send, queue: str) -> Needs:
    yield action, queue
    yield from _reply_to((command.attributes or {}).get(REPLY_TO))


def _declare(broker: Broker, action: str, command: wire.Declare, queue: str) -> Needs:
    """Opening an existing queue only looks it up, unless its dead-letter policy changes."""
    policy, fresh = command.policy, command.create and queue not in broker.store.sessions
    yield "GetQueueUrl", queue  # first, so that a denial does not reveal whether it exists
    if fresh or policy is not None:
        yield action if fresh else "SetQueueAttributes", queue
    target = policy.name if policy is not None else None
    if fresh and policy is None and not command.immortal:
        target = broker.names.dead_letters_of(queue)
    if target is not None:
        yield from _into(broker, target)
        if target in broker.store.sessions:
            yield "SetQueueAttributes", target


def _redrive(broker: Broker, action: str, command: wire.Redrive, queue: str) -> Needs:
    """Without a target, each step checks the targets of its messages: see `check_move`."""
    yield action, queue
    if command.to is not None:
        yield from _into(broker, command.to)


def _history(broker: Broker, action: str, command: wire.Command, queue: str) -> Needs:
    if not queue:
        raise SqsError(
            "AccessDenied",
            "Reading the history of all queues requires a key with full access; name one queue.",
        )
    yield action, queue


def _backup(broker: Broker, action: str, command: wire.Command, queue: str) -> Needs:
    if isinstance(command, wire.ListFiles):  # one audit entry per backup, not one per file
        yield action, queue
    raise SqsError("AccessDenied", "A backup requires a key with full access.")


NATIVE: Final[dict[type[wire.Command], tuple[str, Callable[..., Needs]]]] = {
    wire.Send: ("SendMessage", _native_send),
    wire.Receive: ("ReceiveMessage", _on_queue),
    wire.Acknowledge: ("DeleteMessage", _on_queue),
    wire.Nack: ("ChangeMessageVisibility", _on_queue),
    wire.Extend: ("ChangeMessageVisibility", _on_queue),
    wire.Release: ("ChangeMessageVisibility", _on_queue),
    wire.Reject: ("ChangeMessageVisibility", _on_queue),
    wire.Purge: ("PurgeQueue", _on_queue),
    wire.Tally: ("GetQueueAttributes", _on_queue),
    wire.Peek: ("ReceiveMessage", _on_queue),
    wire.Delete: ("DeleteMessage", _on_queue),
    wire.Redrive: ("StartMessageMoveTask", _redrive),
    wire.Declare: ("CreateQueue", _declare),
    wire.Pause: ("SetQueueAttributes", _on_queue),
    wire.Drop: ("DeleteQueue", _on_queue),
    wire.ListQueues: ("ListQueues", _none),
    wire.Describe: ("ListQueues", _none),
    wire.Hello: ("GetSessionToken", _none),
    wire.Outline: ("ReceiveMessage", _history),
    wire.Recall: ("ReceiveMessage", _history),
    wire.ListFiles: ("Backup", _backup),
    wire.ReadFile: ("Backup", _backup),
}
