"""The address of a queue: its name, its ARN, its queue URL, or an `sqs:` URL."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import SplitResult

from msgspec import Struct

from pillarbox.core import limits
from pillarbox.core.errors import InvalidParameterError
from pillarbox.mailbox.url import split_url, without_password

FIFO = ".fifo"
_FORMS = (
    "a queue's name, ARN or URL, or sqs://region/name, sqs://region/account/name, "
    "sqs+http://host:port/name"
)
_AWS_HOST = re.compile(r"(?:sqs\.([a-z0-9-]+)|([a-z0-9-]+)\.queue)\.(?:amazonaws\.com|api\.aws)")


class QueueAddress(Struct, frozen=True):
    """The name of a queue, and its region, account and endpoint as far as known."""

    name: str
    region: str | None = None
    account: str | None = None
    endpoint: str | None = None
    queue_url: str | None = None

    @property
    def fifo(self) -> bool:
        return self.name.endswith(FIFO)


def address_of(where: Any, parameter: str = "name") -> QueueAddress:
    """Parse a queue's address; raise InvalidParameterError if it names no queue."""
    if not isinstance(where, str) or ":" not in where:
        return QueueAddress(limits.queue_name(where, parameter))
    if where.startswith("arn:"):
        return from_arn(where, parameter)
    url = split_url(where, _FORMS, parameter)
    if url.scheme == "sqs":
        account, name = _account_and_name(url, parameter)
        return QueueAddress(name, url.netloc or None, account)
    if url.scheme in ("sqs+http", "sqs+https"):
        account, name = _account_and_name(url, parameter)
        return QueueAddress(
            name, None, account, f"{url.scheme.removeprefix('sqs+')}://{url.netloc}"
        )
    if url.scheme in ("http", "https"):
        account, name = _account_and_name(url, parameter)
        aws = _AWS_HOST.fullmatch(url.hostname or "")
        if aws:
            return QueueAddress(name, aws[1] or aws[2], account, None, where)
        return QueueAddress(name, None, account, f"{url.scheme}://{url.netloc}", where)
    raise InvalidParameterError(parameter, without_password(where), _FORMS)


def from_arn(arn: str, parameter: str = "name") -> QueueAddress:
    """Parse an ARN, such as arn:aws:sqs:eu-west-1:123456789012:orders."""
    parts = arn.split(":")
    if len(parts) != 6 or parts[2] != "sqs":
        raise InvalidParameterError(parameter, arn, "arn:aws:sqs:region:account:name")
    return QueueAddress(limits.queue_name(parts[5], parameter), parts[3], parts[4])


def _account_and_name(url: SplitResult, parameter: str) -> tuple[str | None, str]:
    *before, name = url.path.strip("/").split("/")
    if len(before) > 1 or not url.netloc:
        raise InvalidParameterError(parameter, without_password(url.geturl()), _FORMS)
    return (before[0] if before else None), limits.queue_name(name, parameter)
