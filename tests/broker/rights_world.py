"""A broker with three kinds of keys and queues of two owners, for the tables of rights."""

from __future__ import annotations

import http.client
import json
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from pillarbox.broker import Key
from pillarbox.mailbox.broker import wire
from pillarbox.mailbox.broker.address import address_of
from pillarbox.mailbox.broker.login import Login
from pillarbox.testing import FakeClock
from pillarbox.testing.broker import RunningBroker, running_broker

ALL, LIMITED, READER = "ALL", "LIMITED", "READER"
KEYS = (
    Key(ALL, "s"),
    Key(LIMITED, "s", queues=("a-*",)),
    Key(READER, "s", actions=("read",)),
    Key("EXACT", "s", queues=("a-new",)),
    Key("BARE", "s", actions=("SendMessage",)),
)
DENIED = "AccessDenied"

Answer = tuple[int, dict[str, str], bytes]  # the status, the fields, the body


class World:
    """Queues `a-*` and `b-*`; `a-shared` holds a dead letter of each owner, `a-dlq` two of a's."""

    def __init__(self, url: RunningBroker) -> None:
        self.url = url
        self.store = url.broker.store
        self._tokens: dict[str, str] = {}
        for owner in "ab":
            for name in ("orders", "dlq"):
                self.sqs(ALL, "CreateQueue", QueueName=f"{owner}-{name}")
        self.sqs(ALL, "CreateQueue", QueueName="a-shared")
        self._bury("a-source", "a-dlq", 2)
        self._bury("b-source", "b-dlq", 2)
        self._bury("a-shares", "a-shared", 1)
        self._bury("b-shares", "a-shared", 1)
        self.handles = {}
        for name in ("a-orders", "b-orders"):
            self.sqs(ALL, "SendMessage", QueueUrl=name, MessageBody="held")
            (held,) = self.sqs(ALL, "ReceiveMessage", QueueUrl=name)["Messages"]
            self.handles[name] = held["ReceiptHandle"]
            self.sqs(ALL, "SendMessage", QueueUrl=name, MessageBody="ready")
            self.sqs(ALL, "AddPermission", QueueUrl=name, Label="known", AWSAccountIds=["1" * 12],
                     Actions=["SendMessage"])  # fmt: skip

    def _bury(self, source: str, target: str, count: int) -> None:
        policy = {"RedrivePolicy": policy_to(target), "VisibilityTimeout": "0"}
        self.sqs(ALL, "CreateQueue", QueueName=source, Attributes=policy)
        for number in range(count):
            self.sqs(ALL, "SendMessage", QueueUrl=source, MessageBody=str(number))
        for _ in range(2):
            self.sqs(ALL, "ReceiveMessage", QueueUrl=source, MaxNumberOfMessages=10)

    def sqs(self, key: str, action: str, path: str = "/", **ask: Any) -> dict[str, Any]:
        """The answer; for an error its code as `Code`."""
        body = json.dumps(ask).encode()
        headers = {"X-Amz-Target": f"AmazonSQS.{action}"}
        return self._json("POST", path, body, signed(f"{self.url}{path}", key, body, headers))

    def _json(self, method: str, path: str, body: bytes, headers: Any) -> dict[str, Any]:
        status, fields, data = self.http(method, path, body, headers)
        answer: dict[str, Any] = json.loads(data)
        if status != 200:
            answer["Code"] = fields["x-amzn-query-error"].partition(";")[0]
        return answer

    def http(self, method: str, path: str, body: bytes, headers: Any) -> Answer:
        return exchange(self.url, method, path, body, headers)

    def native(self, key: str, queue: str, command: wire.Command) -> Any:
        """The outcome of a command, asked with the token of a key."""
        token = self._tokens.get(key)
        if token is None:
            address, _ = address_of(str(self.url).replace("://", f"://{key}:s@"))
            head, hello = Login(address).request()
            fields = dict(line.split(": ", 1) for line in head.decode().split("\r\n")[1:-1])
            fields.pop("Content-Length", None)
            _, _, data = self.http("POST", f"{wire.PATH}/", hello, fields)
            (welcome,) = wire.decode_results(data)
            token = self._tokens[key] = str(welcome.value)  # type: ignore[union-attr]
        body = wire.encode(wire.Request(secrets.token_bytes(16), 1, "", [command]))
        fields = {"Content-Type": "application/msgpack", "Authorization": f"Pillarbox {token}"}
        status, _, data = self.http("POST", f"{wire.PATH}/{queue}", body, fields)
        assert status == 200, data
        (outcome,) = wire.decode_results(data)
        return outcome

    def state(self) -> Any:
        """All there is to know about the queues, to see that nothing has changed."""
        found = {}
        for name, session in sorted(self.store.sessions.items()):
            seen = [
                [
                    (record.key, count, record.priority)
                    for record, count in session.look(state, None)
                ]
                for state in ("ready", "scheduled", "in_flight")
            ]
            deadlines = [lease.deadline for lease in session.queue.leases]
            dead = session.dead.queue.name if session.dead is not None else None
            settings, notes = session.queue.settings, dict(session.notes)
            tasks = [str(task) for task in self.url.broker.local.get(name).move_tasks]
            found[name] = (seen, deadlines, dead, settings, notes, tasks)
        return found


def exchange(url: str, method: str, path: str, body: bytes, headers: Any) -> Answer:
    where = urlsplit(str(url))
    assert where.hostname
    connection = http.client.HTTPConnection(where.hostname, where.port, timeout=30)
    connection.request(method, path, body, headers)
    response = connection.getresponse()
    data = response.read()
    connection.close()
    return response.status, {k.lower(): v for k, v in response.getheaders()}, data


def arn(queue: str) -> str:
    return f"arn:aws:sqs:us-east-1:000000000000:{queue}"


def policy_to(queue: str) -> str:
    return json.dumps({"deadLetterTargetArn": arn(queue), "maxReceiveCount": 1})


def signed(
    url: str,
    key: str,
    body: bytes,
    headers: dict[str, str],
    region: str = "us-east-1",
    service: str = "sqs",
) -> dict[str, str]:
    request = AWSRequest("POST", url, data=body, headers=headers)
    credentials = Credentials(key, "s")  # type: ignore[no-untyped-call,unused-ignore]
    SigV4Auth(credentials, service, region).add_auth(request)  # type: ignore[no-untyped-call,unused-ignore]
    return dict(request.headers.items())


@contextmanager
def world() -> Iterator[World]:
    with running_broker(keys=KEYS, clock=FakeClock()) as url:
        yield World(url)
