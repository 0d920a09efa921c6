"""Lists the queues of an account in a region or of a server, and deletes a queue."""

from __future__ import annotations

from typing import Any, TypeVar
from urllib.parse import urlsplit

from pillarbox.core.errors import InvalidParameterError
from pillarbox.mailbox.runner import Verb, run_sync
from pillarbox.mailbox.sqs.address import QueueAddress, address_of
from pillarbox.mailbox.sqs.call import ask
from pillarbox.mailbox.sqs.connection import SQSConnection
from pillarbox.mailbox.sqs.queue import url_of

R = TypeVar("R")

_PAGE = 1_000  # the largest page that SQS returns


def list_queues(url: str) -> list[str]:
    """Return the URLs of all queues on a server; if the URL names a queue, only that one.

    A server is the part before the queue's name: `sqs://region`, `sqs+http://host:port`.
    """
    parts = urlsplit(url)
    if parts.path.strip("/"):
        try:
            _run(address_of(url, "url"), url_of(address_of(url, "url")))
        except InvalidParameterError as error:
            if error.parameter != "name":  # otherwise the queue does not exist
                raise
            return []
        return [url]
    anywhere = address_of(parts._replace(path="/-").geturl(), "url")
    found = _run(anywhere, _queue_urls())
    return [parts._replace(path="/".join(["", *each.split("/")[-2:]])).geturl() for each in found]


def delete_queue(url: str) -> None:
    """Delete a queue and its messages; its dead-letter queue stays."""
    address = address_of(url, "url")
    _run(address, _delete(address))


def _queue_urls() -> Verb[list[str]]:
    found: list[str] = []
    more: dict[str, Any] = {}
    while True:
        answer = yield from ask("list_queues", MaxResults=_PAGE, **more)
        found += answer.get("QueueUrls", [])
        if not answer.get("NextToken"):
            return found
        more = {"NextToken": answer["NextToken"]}


def _delete(address: QueueAddress) -> Verb[None]:
    yield from ask("delete_queue", QueueUrl=address.queue_url or (yield from url_of(address)))


def _run(address: QueueAddress, verb: Verb[R]) -> R:
    return run_sync(SQSConnection(None, address.region, address.endpoint).do, verb)
