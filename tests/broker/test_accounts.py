"""Queues of other accounts: a policy lets their keys in; without keys the key id is the account."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError

from pillarbox.broker import Key
from pillarbox.broker.policies import allows
from pillarbox.mailbox.redis.shared import RedisSharedStore
from pillarbox.testing.broker import RunningBroker, running_broker
from pillarbox.testing.redis import shared_server
from tests.broker.support import Client, Refused

OWN, ELSE = "000000000000", "111122223333"
KEYS = (
    Key("owner", "owner-secret"),
    Key("guest", "guest-secret", account=ELSE),
    Key("limited", "limited-secret", ("orders*",), ("receive",), account=ELSE),
)
MISSING = "AWS.SimpleQueueService.NonExistentQueue"
NO_ACCESS = "The specified queue does not exist or you do not have access to it."
ARN = f"arn:aws:sqs:us-east-1:{OWN}:orders"


def _client(url: RunningBroker, key: str, service: str = "sqs") -> Any:
    return boto3.client(
        service,
        endpoint_url=str(url),
        region_name="us-east-1",
        aws_access_key_id=key,
        aws_secret_access_key=f"{key}-secret",
    )


def _refused(ask: Any, **parameters: Any) -> tuple[str, str]:
    with pytest.raises(ClientError) as refused:
        ask(**parameters)
    error = refused.value.response["Error"]
    return error["Code"], error["Message"]


def _denied(action: str) -> tuple[str, str]:
    what = f"User: guest is not authorized to perform: sqs:{action} on resource: {ARN}"
    return "AccessDenied", what


@pytest.fixture(params=["own", "shared"])
def broker(request: pytest.FixtureRequest) -> Iterator[RunningBroker]:
    shared = request.param == "shared"
    store = RedisSharedStore(shared_server().url) if shared else None
    with running_broker(keys=KEYS, shared_store=store, recreate_after_seconds=0) as url:
        yield url


@pytest.fixture
def orders(broker: RunningBroker) -> Iterator[str]:
    """A queue of the owner's, with one message."""
    owner = _client(broker, "owner")
    queue = owner.create_queue(QueueName="orders")["QueueUrl"]
    owner.send_message(QueueUrl=queue, MessageBody="a")
    yield queue
    owner.delete_queue(QueueUrl=queue)


def _allow(broker: RunningBroker, queue: str, *actions: str, label: str = "guest") -> None:
    _client(broker, "owner").add_permission(
        QueueUrl=queue, Label=label, AWSAccountIds=[ELSE], Actions=list(actions)
    )


def test_R55_a_permission_lets_another_account_use_a_queue(
    broker: RunningBroker, orders: str
) -> None:
    guest = _client(broker, "guest")
    send = {"QueueUrl": orders, "MessageBody": "b"}
    assert _refused(guest.send_message, **send) == (MISSING, NO_ACCESS)
    _allow(broker, orders, "SendMessage")
    guest.send_message(**send)
    entries = [{"Id": "c", "MessageBody": "c"}]
    assert len(guest.send_message_batch(QueueUrl=orders, Entries=entries)["Successful"]) == 1
    assert _refused(guest.receive_message, QueueUrl=orders) == _denied("ReceiveMessage")
    owner = {"QueueName": "orders", "QueueOwnerAWSAccountId": OWN}
    assert _refused(guest.get_queue_url, **owner) == (MISSING, NO_ACCESS)
    _allow(broker, orders, "ReceiveMessage", "DeleteMessage", label="more")
    found = guest.receive_message(QueueUrl=orders, MaxNumberOfMessages=10)["Messages"]
    assert [message["Body"] for message in found] == ["a", "b", "c"]
    guest.delete_message(QueueUrl=orders, ReceiptHandle=found[0]["ReceiptHandle"])
    _client(broker, "owner").remove_permission(QueueUrl=orders, Label="guest")
    assert _refused(guest.send_message, **send) == _denied("SendMessage")
    _client(broker, "owner").remove_permission(QueueUrl=orders, Label="more")
    assert _refused(guest.send_message, **send) == (MISSING, NO_ACCESS)


def test_R55_a_queue_of_another_account_is_looked_up_by_its_owner(
    broker: RunningBroker, orders: str
) -> None:
    guest = _client(broker, "guest")
    wanted = {"QueueName": "orders", "QueueOwnerAWSAccountId": OWN}
    assert _refused(guest.get_queue_url, **wanted) == (MISSING, NO_ACCESS)
    _allow(broker, orders, "GetQueueUrl")
    assert guest.get_queue_url(**wanted)["QueueUrl"] == orders
    assert "QueueUrls" not in guest.list_queues()
    code, message = _refused(guest.get_queue_url, QueueName="orders")
    assert (code, message) == (MISSING, "The specified queue does not exist.")
    for owner, name in (("12", "orders"), (OWN, "x/orders"), (OWN, f"us-east-1:{OWN}:orders")):
        code, _ = _refused(guest.get_queue_url, QueueName=name, QueueOwnerAWSAccountId=owner)
        assert code == MISSING


def test_R55_nobody_learns_which_queues_another_account_has(
    broker: RunningBroker, orders: str
) -> None:
    guest = _client(broker, "guest")
    for queue in (orders, orders.replace("orders", "nothing")):
        assert _refused(guest.purge_queue, QueueUrl=queue) == (MISSING, NO_ACCESS)


def test_R55_only_the_owner_changes_a_queue(broker: RunningBroker, orders: str) -> None:
    guest = _client(broker, "guest")
    _allow(broker, orders, "*")
    guest.get_queue_attributes(QueueUrl=orders, AttributeNames=["All"])
    for action, ask, parameters in (
        ("DeleteQueue", guest.delete_queue, {}),
        ("SetQueueAttributes", guest.set_queue_attributes, {"Attributes": {"DelaySeconds": "1"}}),
        ("TagQueue", guest.tag_queue, {"Tags": {"a": "b"}}),
        ("ListQueueTags", guest.list_queue_tags, {}),
        ("RemovePermission", guest.remove_permission, {"Label": "guest"}),
    ):
        assert _refused(ask, QueueUrl=orders, **parameters) == _denied(action)
    with pytest.raises(ClientError, match="SourceArn parameter doesn't exist"):
        guest.list_message_move_tasks(SourceArn=ARN)


def test_R115_a_key_needs_its_own_right_as_well(broker: RunningBroker, orders: str) -> None:
    limited = _client(broker, "limited")
    _allow(broker, orders, "*")
    assert len(limited.receive_message(QueueUrl=orders)["Messages"]) == 1
    with pytest.raises(ClientError, match="not authorized to perform: sqs:SendMessage"):
        limited.send_message(QueueUrl=orders, MessageBody="b")
    for other in (f"{broker}/{OWN}/invoices", f"{broker}/{OWN}/invoices/", "orders/invoices//"):
        with pytest.raises(ClientError, match="not authorized to perform: sqs:ReceiveMessage"):
            limited.receive_message(QueueUrl=other)


def test_R55_a_name_of_the_store_is_no_name_of_a_queue(broker: RunningBroker) -> None:
    """An unlimited key of the broker's own account must not reach others by it, either."""
    guest, owner = _client(broker, "guest"), _client(broker, "owner")
    queue = guest.create_queue(QueueName="theirs")["QueueUrl"]
    for name in (f"us-east-1:{ELSE}:theirs", f"{broker}/{OWN}/us-east-1:{ELSE}:theirs"):
        code, _ = _refused(owner.send_message, QueueUrl=name, MessageBody="b")
        assert code == MISSING
    guest.delete_queue(QueueUrl=queue)


def _statement(**fields: Any) -> dict[str, Any]:
    return {
        "Effect": "Allow",
        "Principal": {"AWS": f"arn:aws:iam::{ELSE}:root"},
        "Action": "sqs:SendMessage",
        "Resource": ARN,
        **fields,
    }


STATEMENTS: dict[str, tuple[list[dict[str, Any]], bool]] = {
    "an account": ([_statement()], True),
    "an account by its number": ([_statement(Principal={"AWS": [ELSE]})], True),
    "everyone": ([_statement(Principal="*")], True),
    "a user": ([_statement(Principal={"AWS": f"arn:aws:iam::{ELSE}:user/guest"})], True),
    "another user": ([_statement(Principal={"AWS": f"arn:aws:iam::{ELSE}:user/x"})], False),
    "another account": ([_statement(Principal={"AWS": "444455556666"})], False),
    "a service": ([_statement(Principal={"Service": "sns.amazonaws.com"})], False),
    "nobody": ([_statement(Principal={})], False),
    "any action": ([_statement(Action="SQS:*")], True),
    "one of several": ([_statement(Action=["sqs:Receive*", "SQS:sendmessage"])], True),
    "another action": ([_statement(Action="sqs:ReceiveMessage")], False),
    "no action": ([_statement(Action=[])], False),
    "queues with a prefix": ([_statement(Resource=f"arn:aws:sqs:*:{OWN}:ord*")], True),
    "another queue": ([_statement(Resource=f"{ARN}s")], False),
    "the queue itself": ([{**_statement(), "Resource": "*"}], True),
    "a condition": ([_statement(Condition={"Bool": {"aws:SecureTransport": "true"}})], False),
    "all but one": ([_statement(NotPrincipal={"AWS": "444455556666"})], False),
    "a denial": ([_statement(), _statement(Effect="Deny", Principal="*")], False),
    "a denial of something else": (
        [_statement(), _statement(Effect="Deny", Action="sqs:PurgeQueue")],
        True,
    ),
    "a denial on a condition": (
        [_statement(), _statement(Effect="Deny", Condition={"Bool": {"a": "b"}})],
        False,
    ),
    "a pattern is no set of characters": ([_statement(Resource=ARN[:-1] + "[s]")], False),
}


@pytest.mark.parametrize("name", STATEMENTS)
def test_R55_a_policy_allows_what_its_statements_say(name: str) -> None:
    statements, expected = STATEMENTS[name]
    policy = json.dumps({"Version": "2012-10-17", "Statement": statements})
    assert allows(policy, ELSE, "guest", "SendMessageBatch", ARN) is expected
    one = json.dumps({"Version": "2012-10-17", "Statement": statements[0]})
    if len(statements) == 1:
        assert allows(one, ELSE, "guest", "SendMessage", ARN) is expected


# -- without keys ----------------------------------------------------------------------------


def test_R55_without_keys_a_key_id_of_twelve_digits_is_the_account() -> None:
    with running_broker() as url:
        ours, theirs = _client(url, "anything"), _client(url, ELSE)
        first = ours.create_queue(QueueName="orders")["QueueUrl"]
        second = theirs.create_queue(QueueName="orders")["QueueUrl"]
        assert (first, second) == (f"{url}/{OWN}/orders", f"{url}/{ELSE}/orders")
        assert _client(url, ELSE, "sts").get_caller_identity()["Account"] == ELSE
        theirs.send_message(QueueUrl=first, MessageBody="anyone may do everything")
        (message,) = ours.receive_message(QueueUrl=first)["Messages"]
        assert message["Body"] == "anyone may do everything"
        theirs.send_message(QueueUrl=second, MessageBody="a")
        sender = {"MessageSystemAttributeNames": ["SenderId"]}
        (message,) = theirs.receive_message(QueueUrl=second, **sender)["Messages"]
        assert message["Attributes"] == {"SenderId": ELSE}
        owner = {"QueueOwnerAWSAccountId": ELSE}
        assert ours.get_queue_url(QueueName="orders", **owner)["QueueUrl"] == second
        ours.delete_queue(QueueUrl=first)
        assert "QueueUrls" not in ours.list_queues()
        assert theirs.list_queues()["QueueUrls"] == [second]


@pytest.mark.parametrize("protocol", ["json", "query"])
def test_R55_a_missing_queue_of_another_account_has_its_own_words(protocol: str) -> None:
    with running_broker() as url, Client(url, protocol) as sqs:
        with pytest.raises(Refused) as refused:
            sqs("SendMessage", QueueUrl=f"{url}/{ELSE}/orders", MessageBody="a")
        error = refused.value
        assert (error.status, error.code, error.message) == (400, MISSING, NO_ACCESS)


@pytest.mark.parametrize(
    ("host", "path"),
    [
        ("sqs.eu-west-1.localhost", f"/{OWN}/orders"),
        ("eu-west-1.queue.localhost", f"/{OWN}/orders"),
        ("localhost", f"/queue/eu-west-1/{OWN}/orders"),
    ],
)
def test_R55_an_unsigned_request_is_for_the_region_of_its_URL(host: str, path: str) -> None:
    with running_broker() as url, Client(url) as sqs:
        signed = "AWS4-HMAC-SHA256 Credential=k/20260101/eu-west-1/sqs/aws4_request, Signature=s"
        form = {"Content-Type": "application/x-www-form-urlencoded"}
        create, get = b"Action=CreateQueue&QueueName=orders", "?Action=GetQueueAttributes"
        assert sqs.raw("POST", "/", create, {**form, "Authorization": signed})[0] == 200
        status, _, data = sqs.raw(
            "GET", f"{path}{get}&AttributeName.1=QueueArn", headers={"Host": host}
        )
        assert (status, f"arn:aws:sqs:eu-west-1:{OWN}:orders".encode() in data) == (200, True)
        status, _, data = sqs.raw("GET", f"/{OWN}/orders{get}")
        assert (status, b"NonExistentQueue" in data) == (400, True)


def test_R115_a_bare_name_does_not_lead_to_the_queue_of_another_account() -> None:
    with running_broker(keys=KEYS) as url:
        guest = _client(url, "guest")
        guest.create_queue(QueueName="jobs")
        guest.send_message(QueueUrl="jobs", MessageBody="a")  # its URL is cached now
        code, _ = _refused(_client(url, "owner").purge_queue, QueueUrl=f"us-east-1:{ELSE}:jobs")
        assert code == MISSING
