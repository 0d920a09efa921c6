"""R115: every action, every parameter that names a queue, three kinds of keys.

The tables below have a row for each parameter of each action and command. One that is new has
none, and then `test_R115_every_parameter_has_a_row` fails: say whether it names a queue.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, get_args

import msgspec
import pytest

from pillarbox.broker.attributes import SETTABLE
from pillarbox.broker.rights import NATIVE, SQS
from pillarbox.broker.sqs import ACTIONS
from pillarbox.mailbox import sqs_form
from pillarbox.mailbox.answers import REPLY_TO
from pillarbox.mailbox.broker import wire
from tests.broker.rights_world import (
    ALL,
    DENIED,
    LIMITED,
    READER,
    World,
    arn,
    policy_to,
    world,
)

MISSING = "b-missing"


class Row(NamedTuple):
    """How to name a queue in a parameter, and whether a key that may only read is let in."""

    ask: Callable[[World, str], Any]
    reader: bool = False
    own: str = "a-orders"
    foreign: str = "b-orders"
    missing: bool = True  # whether it can name a queue that does not exist


def _on(**more: Any) -> Callable[[World, str], dict[str, Any]]:
    return lambda w, q: {"QueueUrl": q, **more}


def _handle(w: World, q: str) -> str:
    return w.handles.get(q, "x")


def _entry(**more: Any) -> dict[str, Any]:
    return {"Id": "1", **more}


def _reply(q: str) -> dict[str, Any]:
    return {sqs_form.REPLY_TO: {"DataType": "String", "StringValue": q}}


def _task(w: World, q: str) -> str:
    """The handle of a task that moves a message a second, and so runs on."""
    w.sqs(ALL, "StartMessageMoveTask", SourceArn=arn(q), MaxNumberOfMessagesPerSecond=1)
    (task,) = w.sqs(ALL, "ListMessageMoveTasks", SourceArn=arn(q))["Results"]
    handle: str = task["TaskHandle"]
    return handle


_DLQ = {"own": "a-dlq", "foreign": "b-dlq"}
SQS_ROWS: dict[tuple[str, str], Row] = {
    ("SendMessage", "QueueUrl"): Row(_on(MessageBody="x")),
    ("SendMessage", "MessageAttributes"): Row(
        lambda w, q: {"QueueUrl": "a-orders", "MessageBody": "x", "MessageAttributes": _reply(q)}
    ),
    ("SendMessageBatch", "QueueUrl"): Row(_on(Entries=[_entry(MessageBody="x")])),
    ("SendMessageBatch", "Entries.MessageAttributes"): Row(
        lambda w, q: {
            "QueueUrl": "a-orders",
            "Entries": [_entry(MessageBody="x", MessageAttributes=_reply(q))],
        }
    ),
    ("ReceiveMessage", "QueueUrl"): Row(_on()),
    ("DeleteMessage", "QueueUrl"): Row(
        lambda w, q: {"QueueUrl": q, "ReceiptHandle": _handle(w, q)}
    ),
    ("DeleteMessageBatch", "QueueUrl"): Row(
        lambda w, q: {"QueueUrl": q, "Entries": [_entry(ReceiptHandle=_handle(w, q))]}
    ),
    ("ChangeMessageVisibility", "QueueUrl"): Row(
        lambda w, q: {"QueueUrl": q, "ReceiptHandle": _handle(w, q), "VisibilityTimeout": 9}
    ),
    ("ChangeMessageVisibilityBatch", "QueueUrl"): Row(
        lambda w, q: {
            "QueueUrl": q,
            "Entries": [_entry(ReceiptHandle=_handle(w, q), VisibilityTimeout=9)],
        }
    ),
    ("CreateQueue", "QueueName"): Row(lambda w, q: {"QueueName": q}, own="a-new", foreign="b-new"),
    ("CreateQueue", "Attributes.RedrivePolicy"): Row(
        lambda w, q: {"QueueName": "a-new", "Attributes": {"RedrivePolicy": policy_to(q)}}
    ),
    ("DeleteQueue", "QueueUrl"): Row(_on()),
    ("GetQueueUrl", "QueueName"): Row(lambda w, q: {"QueueName": q}, reader=True),
    ("GetQueueAttributes", "QueueUrl"): Row(_on(AttributeNames=["All"]), reader=True),
    ("SetQueueAttributes", "QueueUrl"): Row(_on(Attributes={"DelaySeconds": "9"})),
    ("SetQueueAttributes", "Attributes.RedrivePolicy"): Row(
        lambda w, q: {"QueueUrl": "a-source", "Attributes": {"RedrivePolicy": policy_to(q)}}
    ),
    ("PurgeQueue", "QueueUrl"): Row(_on()),
    ("ListDeadLetterSourceQueues", "QueueUrl"): Row(_on(), reader=True, **_DLQ),  # type: ignore[arg-type]
    ("TagQueue", "QueueUrl"): Row(_on(Tags={"colour": "red"})),
    ("UntagQueue", "QueueUrl"): Row(_on(TagKeys=["colour"])),
    ("ListQueueTags", "QueueUrl"): Row(_on(), reader=True),
    ("AddPermission", "QueueUrl"): Row(
        _on(Label="new", AWSAccountIds=["1" * 12], Actions=["SendMessage"])
    ),
    ("RemovePermission", "QueueUrl"): Row(_on(Label="known")),
    ("StartMessageMoveTask", "SourceArn"): Row(
        lambda w, q: {"SourceArn": arn(q), "DestinationArn": arn("a-orders")},
        **_DLQ,  # type: ignore[arg-type]
    ),
    ("StartMessageMoveTask", "DestinationArn"): Row(
        lambda w, q: {"SourceArn": arn("a-dlq"), "DestinationArn": arn(q)}
    ),
    # Without a destination each message goes back to the queue that it came from.
    ("StartMessageMoveTask", "messages"): Row(
        lambda w, q: {"SourceArn": arn(q)}, own="a-dlq", foreign="a-shared", missing=False
    ),
    ("CancelMessageMoveTask", "TaskHandle"): Row(
        lambda w, q: {"TaskHandle": _task(w, q)},
        missing=False,
        **_DLQ,  # type: ignore[arg-type]
    ),
    ("ListMessageMoveTasks", "SourceArn"): Row(lambda w, q: {"SourceArn": arn(q)}, **_DLQ),  # type: ignore[arg-type]
}
SQS_NAMES_NO_QUEUE = {
    "SendMessage": "MessageBody DelaySeconds MessageSystemAttributes MessageDeduplicationId "
    "MessageGroupId",
    # An entry's QueueUrl is there because entries have the form of messages; nobody reads it.
    "SendMessageBatch": "Entries.Id Entries.QueueUrl Entries.MessageBody Entries.DelaySeconds "
    "Entries.MessageSystemAttributes Entries.MessageDeduplicationId Entries.MessageGroupId",
    "ReceiveMessage": "AttributeNames MessageSystemAttributeNames MessageAttributeNames "
    "MaxNumberOfMessages VisibilityTimeout WaitTimeSeconds ReceiveRequestAttemptId",
    "DeleteMessage": "ReceiptHandle",  # it is signed together with its queue's name
    "DeleteMessageBatch": "Entries.Id Entries.ReceiptHandle",
    "ChangeMessageVisibility": "ReceiptHandle VisibilityTimeout",
    "ChangeMessageVisibilityBatch": "Entries.Id Entries.ReceiptHandle Entries.VisibilityTimeout",
    "CreateQueue": "tags Tags",
    "ListQueues": "QueueNamePrefix NextToken MaxResults",  # see what a list shows, below
    "GetQueueUrl": "QueueOwnerAWSAccountId",
    "GetQueueAttributes": "AttributeNames",
    "TagQueue": "Tags",
    "UntagQueue": "TagKeys",
    "AddPermission": "Label AWSAccountIds Actions",
    "RemovePermission": "Label",
    "ListDeadLetterSourceQueues": "NextToken MaxResults",
    "StartMessageMoveTask": "MaxNumberOfMessagesPerSecond",
    "ListMessageMoveTasks": "MaxResults",
}
# RedriveAllowPolicy names queues that may use this one: it is kept, and nothing is looked up.
ATTRIBUTES_THAT_NAME_NO_QUEUE = SETTABLE - {"RedrivePolicy"}

Native = tuple[str, wire.Command]  # the queue in the path, and the command


def _to(command: Callable[[World, str], wire.Command]) -> Callable[[World, str], Native]:
    return lambda w, q: (q, command(w, q))


def _dead_letter(w: World, source: str) -> str:
    """The id of the dead letter in `a-shared` that came from this queue."""
    records = [record for record, _ in w.store.sessions["a-shared"].look("ready", None)]
    deaths = {record.key: record.extra.death for record in records if record.extra is not None}
    (key,) = (key for key, death in deaths.items() if death and death.source == source)
    return w.store.message_id(key)


NATIVE_ROWS: dict[tuple[str, str], Row] = {
    ("Send", "queue"): Row(_to(lambda w, q: wire.Send([b"x"]))),
    ("Send", "attributes"): Row(
        lambda w, q: ("a-orders", wire.Send([b"x"], attributes={REPLY_TO: q}))
    ),
    ("Receive", "queue"): Row(_to(lambda w, q: wire.Receive(1, 9))),
    ("Acknowledge", "queue"): Row(_to(lambda w, q: wire.Acknowledge([_handle(w, q)]))),
    ("Nack", "queue"): Row(_to(lambda w, q: wire.Nack([_handle(w, q)]))),
    ("Extend", "queue"): Row(_to(lambda w, q: wire.Extend([_handle(w, q)], 9))),
    ("Release", "queue"): Row(_to(lambda w, q: wire.Release([_handle(w, q)]))),
    ("Reject", "queue"): Row(_to(lambda w, q: wire.Reject([_handle(w, q)], "bad"))),
    ("Purge", "queue"): Row(_to(lambda w, q: wire.Purge())),
    ("Tally", "queue"): Row(_to(lambda w, q: wire.Tally()), reader=True),
    ("Peek", "queue"): Row(_to(lambda w, q: wire.Peek("ready", 1))),
    ("Delete", "queue"): Row(_to(lambda w, q: wire.Delete(["x"]))),
    ("Redrive", "queue"): Row(lambda w, q: (q, wire.Redrive(to="a-orders")), **_DLQ),  # type: ignore[arg-type]
    ("Redrive", "to"): Row(lambda w, q: ("a-dlq", wire.Redrive(to=q))),
    # Without `to` each message goes back to the queue that it came from.
    ("Redrive", "ids"): Row(
        lambda w, q: ("a-shared", wire.Redrive([_dead_letter(w, q)])),
        own="a-shares",
        foreign="b-shares",
        missing=False,
    ),
    ("Declare", "queue"): Row(_to(lambda w, q: wire.Declare()), own="a-new", foreign="b-new"),
    ("Declare", "existing"): Row(_to(lambda w, q: wire.Declare()), reader=True),
    ("Declare", "policy"): Row(
        lambda w, q: ("a-new", wire.Declare(policy=wire.Policy(1, q))), own="a-dlq", foreign="b-dlq"
    ),
    ("Pause", "queue"): Row(_to(lambda w, q: wire.Pause(paused=True))),
    ("Drop", "queue"): Row(_to(lambda w, q: wire.Drop())),
}
NATIVE_NAMES_NO_QUEUE = {
    "Send": "bodies priority delay_us group deduplication",
    "Receive": "count timeout_us wait_us",
    "Acknowledge": "handles",
    "Nack": "handles delay_us",
    "Extend": "handles timeout_us",
    "Release": "handles to_front",
    "Reject": "handles reason",
    "Peek": "state count skip",
    "Delete": "ids",  # of this queue's messages
    "Redrive": "limit skip",
    "Declare": "content_type redelivery capacity fair immortal create",
    "Pause": "paused",
    "ListQueues": "queue",  # see what a list shows, below
    "Describe": "queue",  # it tells what the key may do with it, and no more
    "Hello": "queue",
    "Outline": "queue time_ns",  # see the history, below
    "Recall": "queue start stop kinds",
    "ListFiles": "queue",  # see the backup, below
    "ReadFile": "queue name offset size",
}


# -- the tables are whole ------------------------------------------------------------------------


def _sqs_parameters() -> Iterator[tuple[str, str]]:
    for action in ACTIONS.values():
        for field in msgspec.structs.fields(action.shape):
            if field.name == "Attributes":
                yield from ((action.name, f"Attributes.{name}") for name in SETTABLE)
            elif field.name == "Entries":
                (entries, _) = get_args(field.type)
                (entry,) = get_args(entries)
                for inner in msgspec.structs.fields(entry):
                    yield action.name, f"Entries.{inner.name}"
            else:
                yield action.name, field.name


def _native_parameters() -> Iterator[tuple[str, str]]:
    for command in get_args(wire.Command):
        yield command.__name__, "queue"
        for field in msgspec.structs.fields(command):
            yield command.__name__, field.name


def _all_of(table: dict[str, str]) -> set[tuple[str, str]]:
    return {(action, name) for action, names in table.items() for name in names.split()}


def _without_rows(
    parameters: Iterator[tuple[str, str]], rows: set[tuple[str, str]]
) -> set[tuple[str, str]]:
    return set(parameters) - rows


def _sqs_rows() -> set[tuple[str, str]]:
    inert = {
        (action, f"Attributes.{name}")
        for action in ("CreateQueue", "SetQueueAttributes")
        for name in ATTRIBUTES_THAT_NAME_NO_QUEUE
    }
    return set(SQS_ROWS) | _all_of(SQS_NAMES_NO_QUEUE) | inert


def test_R115_every_parameter_has_a_row() -> None:
    assert _without_rows(_sqs_parameters(), _sqs_rows()) == set()
    native = set(NATIVE_ROWS) | _all_of(NATIVE_NAMES_NO_QUEUE)
    assert _without_rows(_native_parameters(), native) == set()
    control = _without_rows(iter([("SendMessage", "CopyTo"), ("CopyQueue", "x")]), _sqs_rows())
    assert len(control) == 2


def test_R115_every_action_has_a_rule() -> None:
    assert {action.shape for action in ACTIONS.values()} == set(SQS)
    assert set(get_args(wire.Command)) == set(NATIVE)


# -- every row, every key ------------------------------------------------------------------------


def _cases(rows: dict[tuple[str, str], Row]) -> list[Any]:
    """A key, which queue it names, and whether it is let in."""
    found = []
    for (action, parameter), row in rows.items():
        for key in (ALL, LIMITED, READER):
            for queue, is_own in ((row.own, True), (row.foreign, False)):
                lets_in = {ALL: True, LIMITED: is_own, READER: row.reader}[key]
                name = f"{action}-{parameter}-{key}-{queue}"
                found.append(pytest.param(action, row, key, queue, lets_in, id=name))
    return found


@pytest.mark.parametrize(("action", "row", "key", "queue", "lets_in"), _cases(SQS_ROWS))
def test_R115_SQS(action: str, row: Row, key: str, queue: str, lets_in: bool) -> None:
    with world() as w:
        ask = row.ask(w, queue)
        before = w.state()
        answer = w.sqs(key, action, **ask)
        if lets_in:
            assert "Code" not in answer, answer
            assert "Failed" not in answer, answer
            return
        assert answer["Code"] == DENIED
        assert w.state() == before
        if ask.get("QueueUrl") == queue:  # the same by the path that it is sent to
            del ask["QueueUrl"]
            answer = w.sqs(key, action, path=f"/000000000000/{queue}", **ask)
            assert answer["Code"] == DENIED
            assert w.state() == before


@pytest.mark.parametrize(("action", "row", "key", "queue", "lets_in"), _cases(NATIVE_ROWS))
def test_R115_native(action: str, row: Row, key: str, queue: str, lets_in: bool) -> None:
    with world() as w:
        path, command = row.ask(w, queue)
        before = w.state()
        outcome = w.native(key, path, command)
        if lets_in:
            assert not isinstance(outcome, wire.Failed), outcome
            return
        assert isinstance(outcome, wire.Failed)
        assert outcome.code == "AccessDeniedError"
        assert w.state() == before


@pytest.mark.parametrize("key", [LIMITED, READER])
def test_R115_a_missing_queue_and_a_foreign_one_give_the_same_answer(key: str) -> None:
    with world() as w:
        for (action, _), row in SQS_ROWS.items():
            if row.missing and not (row.reader and key == READER):
                asked = [row.ask(w, queue) for queue in (row.foreign, MISSING)]
                there, away = (w.sqs(key, action, **each) for each in asked)
                assert away["Code"] == DENIED
                assert away["message"] == there["message"].replace(row.foreign, MISSING)
        for row in NATIVE_ROWS.values():
            if row.missing and not (row.reader and key == READER):
                asked = [row.ask(w, queue) for queue in (row.foreign, MISSING)]
                there, away = (w.native(key, *each) for each in asked)
                assert away.code == "AccessDeniedError"
                assert away.message == there.message.replace(row.foreign, MISSING)
        assert MISSING not in w.store.sessions
