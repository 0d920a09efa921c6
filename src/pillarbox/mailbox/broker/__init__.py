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
from pillarbox.mailbox.options import openers
from pillarbox.mailbox.url import without_password

__all__ = [
    "AccessDeniedError",
    "AsyncBrokerMailbox",
    "BrokerMailbox",
    "BrokerOptions",
    "QueueNotFoundError",
    "open_async_url",
    "open_url",
]


def _name_and_options(url: str) -> tuple[str, dict[str, Any]]:
    """Return the queue name and the broker's URL."""
    _, name = address_of(url)
    if not name:
        wanted = "with the name of a queue after the host"
        raise InvalidParameterError("url", without_password(url), wanted)
    return name, {"url": url[: url.rindex("/") + 1]}


open_url, open_async_url = openers(BrokerMailbox, AsyncBrokerMailbox, _name_and_options)
