"""The two protocols on the wire: what no SDK shows, and what tells them apart."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from urllib.parse import urlsplit
from xml.etree import ElementTree

import pytest

from pillarbox.testing.broker import RunningBroker
from tests.broker.support import ACCOUNT, Client

JSON = "application/x-amz-json-1.0"


@pytest.fixture
def client(broker: RunningBroker) -> Iterator[Client]:
    found = Client(broker)
    yield found
    found.close()


def _target(action: str) -> dict[str, str]:
    return {"X-Amz-Target": f"AmazonSQS.{action}", "Content-Type": JSON}


def test_R55_a_JSON_error_has_its_shape_in_the_body_and_its_query_code_in_a_header(
    client: Client,
) -> None:
    body = json.dumps({"QueueUrl": "nowhere"}).encode()
    status, headers, data = client.raw("POST", "/", body, _target("PurgeQueue"))
    assert status == 400
    assert headers["x-amzn-query-error"] == "AWS.SimpleQueueService.NonExistentQueue;Sender"
    assert json.loads(data)["__type"] == "com.amazonaws.sqs#QueueDoesNotExist"


@pytest.mark.parametrize(
    ("action", "parameters", "shape", "code"),
    [
        (
            "CreateQueue",
            {"QueueName": "a b"},
            "InvalidParameterValueException",
            "InvalidParameterValue",
        ),
        ("CreateQueue", {}, "MissingRequiredParameterException", "MissingParameter"),
        (
            "CreateQueue",
            {"QueueName": "x", "Attributes": {"W": "1"}},
            "InvalidAttributeName",
            "InvalidAttributeName",
        ),
        ("CreateQueue", {"QueueName": 7}, "SerializationException", "MalformedInput"),
        (
            "StartMessageMoveTask",
            {"SourceArn": "arn:aws:sqs:us-east-1:000000000000:none"},
            "ResourceNotFoundException",
            "ResourceNotFoundException",
        ),
    ],
)
def test_R55_shapes_and_query_codes_belong_together(
    client: Client, action: str, parameters: dict[str, object], shape: str, code: str
) -> None:
    _, headers, data = client.raw("POST", "/", json.dumps(parameters).encode(), _target(action))
    assert json.loads(data)["__type"].endswith(f"#{shape}")
    assert headers["x-amzn-query-error"] == f"{code};Sender"


def test_R55_an_unknown_JSON_operation_is_a_404(client: Client) -> None:
    status, _, data = client.raw("POST", "/", b"{}", _target("ShredMessages"))
    assert status == 404
    assert json.loads(data)["__type"].endswith("#UnknownOperationException")


def test_R55_an_unknown_query_action_is_InvalidAction(client: Client) -> None:
    status, _, data = client.raw("POST", "/", b"Action=ShredMessages")
    assert status == 400
    assert b"<Code>InvalidAction</Code>" in data


def test_R55_a_GET_on_a_queue_without_an_action_is_a_404(client: Client) -> None:
    queue = client.create()
    status, _, data = client.raw("GET", queue.removeprefix(client.url))
    assert status == 404
    assert b"UnknownOperationException" in data


def test_R55_a_query_that_is_signed_may_come_as_a_GET(client: Client) -> None:
    queue = client.create()
    path = queue.removeprefix(client.url)
    signed = {"Authorization": "AWS4-HMAC-SHA256 Credential=any"}  # nobody checks it without keys
    status, _, data = client.raw(
        "GET", f"{path}?Action=SendMessage&MessageBody=a%20b%26c", headers=signed
    )
    assert status == 200
    assert b"<MessageId>" in data
    assert client.bodies(queue) == ["a b&c"]


def test_R55_a_query_that_accepts_JSON_is_answered_in_JSON(client: Client) -> None:
    queue = client.create()
    path = f"/?Action=GetQueueUrl&QueueName={queue.rpartition('/')[2]}"
    _, headers, data = client.raw("GET", path, headers={"Accept": "application/json"})
    assert headers["content-type"] == "application/json"
    assert json.loads(data)["GetQueueUrlResponse"]["GetQueueUrlResult"] == {"QueueUrl": queue}
    _, _, data = client.raw("GET", "/?Action=GetQueueUrl", headers={"Accept": "application/json"})
    assert json.loads(data)["Error"]["Code"] == "MissingParameter"


def test_R55_actions_without_a_result_have_no_result_element(client: Client) -> None:
    queue = client.create()
    _, _, data = client.raw("POST", "/", f"Action=PurgeQueue&QueueUrl={queue}".encode())
    root = ElementTree.fromstring(data)
    assert [child.tag.rpartition("}")[2] for child in root] == ["ResponseMetadata"]
    status, _, data = client.raw(
        "POST", "/", json.dumps({"QueueUrl": queue}).encode(), _target("ListQueueTags")
    )
    assert (status, data) == (200, b"{}")


def test_R55_the_answer_names_the_host_that_the_client_used(client: Client) -> None:
    headers = {**_target("CreateQueue"), "Host": "queues.localhost:1234"}
    _, _, data = client.raw("POST", "/", b'{"QueueName": "hosted"}', headers)
    assert json.loads(data) == {"QueueUrl": f"http://queues.localhost:1234/{ACCOUNT}/hosted"}


def test_R55_parameters_that_are_unknown_are_ignored(client: Client) -> None:
    queue = client.create()
    client("SendMessage", QueueUrl=queue, MessageBody="a", Colour="red")
    assert client.bodies(queue) == ["a"]


def test_R55_numbers_in_a_form_are_texts_and_must_be_numbers(client: Client) -> None:
    queue = client.create()
    form = f"Action=ReceiveMessage&QueueUrl={queue}&MaxNumberOfMessages=many"
    status, _, data = client.raw("POST", "/", form.encode())
    assert status == 400
    assert b"<Code>InvalidParameterValue</Code>" in data


def test_R55_requests_may_be_pipelined_and_are_answered_in_order(client: Client) -> None:
    queue = client.create()
    where = urlsplit(client.url)
    with socket.create_connection((where.hostname, where.port), timeout=30) as raw:
        for number in range(50):
            body = json.dumps({"QueueUrl": queue, "MessageBody": str(number)}).encode()
            raw.sendall(
                b"POST / HTTP/1.1\r\nHost: localhost\r\nX-Amz-Target: AmazonSQS.SendMessage\r\n"
                b"Content-Length: %d\r\n\r\n%b" % (len(body), body)
            )
        data = b""
        while data.count(b"MD5OfMessageBody") < 50:
            data += raw.recv(65536)
    import hashlib

    sums = [hashlib.md5(str(number).encode()).hexdigest() for number in range(50)]
    places = [data.index(each.encode()) for each in sums]
    assert places == sorted(places)


def test_R55_a_body_may_come_in_chunks(client: Client) -> None:
    queue = client.create()
    body = json.dumps({"QueueUrl": queue, "MessageBody": "in chunks"}).encode()
    where = urlsplit(client.url)
    with socket.create_connection((where.hostname, where.port), timeout=30) as raw:
        raw.sendall(
            b"POST / HTTP/1.1\r\nHost: localhost\r\nX-Amz-Target: AmazonSQS.SendMessage\r\n"
            b"Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
        )
        for at in range(0, len(body), 7):
            part = body[at : at + 7]
            raw.sendall(b"%x\r\n%b\r\n" % (len(part), part))
        raw.sendall(b"0\r\n\r\n")
        assert b"200 OK" in raw.recv(65536)
    assert client.bodies(queue) == ["in chunks"]


def test_R55_a_client_that_expects_to_be_told_to_continue_is_told(client: Client) -> None:
    where = urlsplit(client.url)
    with socket.create_connection((where.hostname, where.port), timeout=30) as raw:
        raw.sendall(
            b"POST / HTTP/1.1\r\nHost: localhost\r\nX-Amz-Target: AmazonSQS.ListQueues\r\n"
            b"Expect: 100-continue\r\nContent-Length: 2\r\n\r\n"
        )
        assert raw.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
        raw.sendall(b"{}")
        assert raw.recv(100).startswith(b"HTTP/1.1 200 OK")


@pytest.mark.parametrize("path", ["/livez", "/readyz"])
def test_R59_health_is_told(client: Client, path: str) -> None:
    assert client.raw("GET", path)[::2] == (200, b"ok\n")
    status, headers, body = client.raw("HEAD", path)
    assert (status, headers["content-length"], body) == (200, "3", b"")


def test_R59_metrics_are_told_to_Prometheus(client: Client) -> None:
    from prometheus_client.parser import text_string_to_metric_families

    queue = client.create()
    name = queue.rpartition("/")[2]
    for body in "abc":
        client.send(queue, body)
    client.send(queue, "later", DelaySeconds=100)
    client.delete(queue, client.receive(queue, 1)[0])
    client.receive(queue, 1)
    _, headers, data = client.raw("GET", "/metrics")
    assert headers["content-type"].startswith("text/plain; version=0.0.4")
    samples = {
        (sample.name, sample.labels.get("state")): sample.value
        for family in text_string_to_metric_families(data.decode())
        for sample in family.samples
        if sample.labels.get("queue") in (None, name)
    }
    for state, count in (("ready", 1), ("in_flight", 1), ("scheduled", 1)):
        assert samples["pillarbox_messages", state] == count
    for total, count in (("sent", 4), ("received", 2), ("deleted", 1), ("dead", 0)):
        assert samples[f"pillarbox_messages_{total}_total", None] == count
    assert samples["pillarbox_time_in_queue_seconds_count", None] >= 2
    for expected in ("pillarbox_sync_seconds_sum", "pillarbox_sync_batch_size_sum"):
        assert (expected, None) in samples
