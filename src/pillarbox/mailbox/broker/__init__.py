"""`BrokerMailbox`: the Python client of the Pillarbox broker."""

from __future__ import annotations

from typing import Any

from pillarbox.core.errors import InvalidParameterError
from pillarbox.mailbox.broker.address import address_of
from pillarbox.mailbox.broker.errors import AccessDeniedError, QueueNotFoundError
from pillarbox.mailbox.broker.mailbox import (
    AsyncBrokerMailbox,
    BrokerMailbox,
    BrokerOptions,
)

__all__ = [
    "AccessDeniedError",
    "AsyncBrokerMailbox",
    "BrokerMailbox",
    "BrokerOptions",
    "QueueNotFoundError",
    "open_async_url",
    "open_url",
]


def open_url(url: str, body_type: Any = Any, **options: Any) -> BrokerMailbox[Any]:
    """The mailbox that an http(s) URL names."""
    broker, name = split(url)
    return BrokerMailbox(name, body_type, url=broker, **options)


def open_async_url(url: str, body_type: Any = Any, **options: Any) -> AsyncBrokerMailbox[Any]:
    """`open_url` for asyncio."""
    broker, name = split(url)
    return AsyncBrokerMailbox(name, body_type, url=broker, **options)


def split(url: str) -> tuple[str, str]:
    """The broker's URL and the name of the queue."""
    _, name = address_of(url)
    if not name:
        raise InvalidParameterError("url", url, "with the name of a queue after the host")
    return url[: url.rindex("/") + 1], name
