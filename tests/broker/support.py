"""A small raw client of both SQS protocols, so that every rule is proven on the wire itself."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any
from urllib.parse import urlencode, urlsplit
from xml.etree import ElementTree

from pillarbox.closing import Closing
from pillarbox.testing import FakeClock
from pillarbox.testing.broker import RunningBroker

ACCOUNT = "000000000000"
_NAMESPACE = "{http://queue.amazonaws.com/doc/2012-11-05/}"
_numbers = count()

_LISTS = {
    "AttributeNames": "AttributeName",
    "MessageAttributeNames": "MessageAttributeName",
    "MessageSystemAttributeNames": "MessageSystemAttributeName",
    "AWSAccountIds": "AWSAccountId",
    "Actions": "ActionName",
    "TagKeys": "TagKey",
    "StringListValues": "StringListValue",
}
_MAPS = {
    "Attributes": ("Attribute", "Name"),
    "Tags": ("Tag", "Key"),
    "tags": ("Tag", "Key"),
    "MessageAttributes": ("MessageAttribute", "Name"),
    "MessageSystemAttributes": ("MessageSystemAttribute", "Name"),
}
_EACH = {
    "QueueUrl": "QueueUrls",
    "Message": "Messages",
    "BatchResultErrorEntry": "Failed",
    "SendMessageBatchResultEntry": "Successful",
    "DeleteMessageBatchResultEntry": "Successful",
    "ChangeMessageVisibilityBatchResultEntry": "Successful",
    "ListMessageMoveTasksResultEntry": "Results",
}
_PAIRS = {
    "Attribute": ("Attributes", "Name"),
    "MessageAttribute": ("MessageAttributes", "Name"),
    "Tag": ("Tags", "Key"),
}
_NUMBERS = ("ApproximateNumberOfMessagesMoved", "ApproximateNumberOfMessagesToMove")


class Refused(Exception):
    """The broker answered with an error."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(f"{status} {code}: {message}")
        self.status = status
        self.code = code
        self.message = message


class Client(Closing):
    """One keep-alive connection, one protocol."""

    def __init__(self, url: str, protocol: str = "json") -> None:
        self.url = str(url)
        self.protocol = protocol
        where = urlsplit(self.url)
        assert where.hostname
        self._connection = http.client.HTTPConnection(where.hostname, where.port, timeout=60)

    def close(self) -> None:
        self._connection.close()

    def raw(
        self,
        method: str = "POST",
        path: str = "/",
        body: bytes = b"",
        headers: dict[str, str] | None = None,
    ) -> tuple[int, dict[str, str], bytes]:
        self._connection.request(method, path, body, headers or {})
        response = self._connection.getresponse()
        data = response.read()
        return response.status, {k.lower(): v for k, v in response.getheaders()}, data

    def __call__(self, action: str, /, path: str = "/", **parameters: Any) -> dict[str, Any]:
        """Do it; the result in the shape of the JSON protocol."""
        if self.protocol == "json":
            return self._json(action, path, parameters)
        return self._query(action, path, parameters)

    def _json(self, action: str, path: str, parameters: dict[str, Any]) -> dict[str, Any]:
        headers = {
            "X-Amz-Target": f"AmazonSQS.{action}",
            "Content-Type": "application/x-amz-json-1.0",
        }
        status, told, body = self.raw("POST", path, json.dumps(parameters).encode(), headers)
        assert told["content-type"] == "application/x-amz-json-1.0"
        assert told["x-amzn-requestid"]
        result: dict[str, Any] = json.loads(body)
        if status != 200:
            code, _, fault = told["x-amzn-query-error"].partition(";")
            assert fault == ("Sender" if status < 500 else "Receiver")
            assert "#" in result["__type"]
            raise Refused(status, code, result["message"])
        return result

    def _query(self, action: str, path: str, parameters: dict[str, Any]) -> dict[str, Any]:
        form = {"Action": action, "Version": "2012-11-05", **dict(_flat(action, parameters))}
        body = urlencode(form).encode()
        headers = {"Content-Type": "application/x-www-form-urlencoded"}
        status, told, data = self.raw("POST", path, body, headers)
        assert told["content-type"] == "text/xml"
        root = ElementTree.fromstring(data)
        if status != 200:
            error = root.find(f"{_NAMESPACE}Error")
            assert error is not None
            code, message = (error.findtext(f"{_NAMESPACE}{x}", "") for x in ("Code", "Message"))
            raise Refused(status, code, message)
        assert root.tag == f"{_NAMESPACE}{action}Response"
        assert root.find(f"{_NAMESPACE}ResponseMetadata/{_NAMESPACE}RequestId") is not None
        found = root.find(f"{_NAMESPACE}{action}Result")
        return _result(action, found) if found is not None else {}

    # What nearly every test does

    def create(
        self, clock: FakeClock | None = None, /, fifo: bool = False, **attributes: Any
    ) -> str:
        """A new queue of its own for a test; its URL."""
        name = f"q{next(_numbers)}"
        if fifo:
            name, attributes = f"{name}.fifo", {"FifoQueue": "true", **attributes}
        given = {key: str(value) for key, value in attributes.items()}
        url: str = self("CreateQueue", QueueName=name, Attributes=given)["QueueUrl"]
        return url

    def send(self, queue: str, body: str, **options: Any) -> dict[str, Any]:
        return self("SendMessage", QueueUrl=queue, MessageBody=body, **options)

    def receive(self, queue: str, count: int = 10, **options: Any) -> list[dict[str, Any]]:
        answer = self("ReceiveMessage", QueueUrl=queue, MaxNumberOfMessages=count, **options)
        found: list[dict[str, Any]] = answer.get("Messages", [])
        return found

    def bodies(self, queue: str, count: int = 10, **options: Any) -> list[str]:
        return [message["Body"] for message in self.receive(queue, count, **options)]

    def delete(self, queue: str, message: dict[str, Any]) -> None:
        self("DeleteMessage", QueueUrl=queue, ReceiptHandle=message["ReceiptHandle"])

    def attributes(self, queue: str, *names: str) -> dict[str, str]:
        wanted = list(names) or ["All"]
        answer = self("GetQueueAttributes", QueueUrl=queue, AttributeNames=wanted)
        found: dict[str, str] = answer.get("Attributes", {})
        return found

    def counts(self, queue: str) -> tuple[int, int, int]:
        """Visible, in flight, delayed."""
        known = self.attributes(queue)
        names = ("", "NotVisible", "Delayed")
        a, b, c = (int(known[f"ApproximateNumberOfMessages{name}"]) for name in names)
        return a, b, c

    def arn(self, queue: str) -> str:
        return self.attributes(queue, "QueueArn")["QueueArn"]


def _flat(action: str, value: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for name, each in value.items():
        if name == "Entries":
            if not each:
                yield f"{prefix}{action}RequestEntry", ""
            for i, entry in enumerate(each, 1):
                yield from _flat(action, entry, f"{prefix}{action}RequestEntry.{i}.")
        elif name in _LISTS:
            if not each:
                yield prefix + _LISTS[name], ""
            for i, item in enumerate(each, 1):
                yield f"{prefix}{_LISTS[name]}.{i}", item
        elif name in _MAPS:
            outer, key = _MAPS[name]
            for i, (k, v) in enumerate(each.items(), 1):
                yield f"{prefix}{outer}.{i}.{key}", k
                if isinstance(v, dict):
                    yield from _flat(action, v, f"{prefix}{outer}.{i}.Value.")
                else:
                    yield f"{prefix}{outer}.{i}.Value", v
        elif each is not None:
            yield prefix + name, str(each)


def _result(action: str, element: ElementTree.Element) -> dict[str, Any]:
    found: dict[str, Any] = {}
    listing = action in ("ListQueues", "ListDeadLetterSourceQueues")
    for child in element:
        tag = child.tag.removeprefix(_NAMESPACE)
        if tag in _PAIRS and len(child) == 2:
            name, key = _PAIRS[tag]
            k = child.findtext(f"{_NAMESPACE}{key}", "")
            value = child.find(f"{_NAMESPACE}Value")
            assert value is not None
            content = _result(action, value) if len(value) else value.text or ""
            found.setdefault(name, {})[k] = content
        elif tag in _EACH and (len(child) or listing):
            name = "queueUrls" if action == "ListDeadLetterSourceQueues" else _EACH[tag]
            found.setdefault(name, []).append(_result(action, child) if len(child) else child.text)
        elif tag in _NUMBERS:
            found[tag] = int(child.text or 0)
        else:
            found[tag] = child.text or ""
    return found


class World:
    """A broker on a fake clock, and a client of it."""

    def __init__(self, url: RunningBroker, clock: FakeClock, protocol: str) -> None:
        self.url = url
        self.clock = clock
        self.sqs = Client(url, protocol)

    def until_parked(self, queue: str) -> None:
        """Wait for a long poll on a queue; asking over the wire lets the event loop run."""
        while self.url.broker.metrics.parked == 0:
            self.sqs("ListQueues")


def text(value: str, kind: str = "String") -> dict[str, str]:
    """A message attribute."""
    return {"DataType": kind, "StringValue": value}


def eventually(holds: Callable[[], bool], seconds: float = 20.0) -> None:
    """Return as soon as it holds; fail if it never does."""
    until = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < until, "it never came to that"
        time.sleep(0.005)
