"""Which queues an account has in a region, or a server, and the end of one."""

from __future__ import annotations

import time
from typing import Any, TypeVar
from urllib.parse import urlsplit

from pillarbox.core.errors import InvalidParameterError
from pillarbox.mailbox.sqs.clients import shared_client
from pillarbox.mailbox.sqs.errors import from_botocore
from pillarbox.mailbox.sqs.place import Place, find_place
from pillarbox.mailbox.sqs.queue import url_of
from pillarbox.mailbox.sqs.steps import Call, Step, Verb, ask, run

R = TypeVar("R")

_PAGE = 1_000  # the most that SQS tells at once


def list_queues(url: str) -> list[str]:
    """The URL of each queue at a place; of just one, if it is there, where the URL names it.

    A place is what stands before a queue's name: `sqs://region`, `sqs+http://host:port`.
    """
    parts = urlsplit(url)
    if parts.path.strip("/"):
        try:
            _run(find_place(url, "url"), url_of(find_place(url, "url")))
        except InvalidParameterError as error:
            if error.parameter != "name":  # SQS knows none of this name
                raise
            return []
        return [url]
    anywhere = find_place(parts._replace(path="/-").geturl(), "url")
    found = _run(anywhere, _queue_urls())
    return [parts._replace(path="/".join(["", *each.split("/")[-2:]])).geturl() for each in found]


def delete_queue(url: str) -> None:
    """Delete a queue with all that it holds; its dead-letter queue stays."""
    place = find_place(url, "url")
    _run(place, _delete(place))


def _queue_urls() -> Verb[list[str]]:
    found: list[str] = []
    more: dict[str, Any] = {}
    while True:
        answer = yield from ask("list_queues", MaxResults=_PAGE, **more)
        found += answer.get("QueueUrls", [])
        if not answer.get("NextToken"):
            return found
        more = {"NextToken": answer["NextToken"]}


def _delete(place: Place) -> Verb[None]:
    yield from ask("delete_queue", QueueUrl=place.queue_url or (yield from url_of(place)))


def _run(place: Place, verb: Verb[R]) -> R:
    def do(step: Step) -> Any:
        if not isinstance(step, Call):
            return time.sleep(step.seconds)
        client = shared_client(None, place.region, place.endpoint)
        try:
            return getattr(client, step.operation)(**step.params)
        except Exception as error:
            raise from_botocore(error, step.operation, place.name) from error

    return run(verb, do)
