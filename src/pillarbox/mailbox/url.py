"""open_mailbox(url, body_type): one word for every backend."""

from __future__ import annotations

from typing import Any, TypeVar, overload

from pillarbox.core import limits
from pillarbox.core.errors import InvalidParameterError
from pillarbox.mailbox.memory import AsyncInMemoryMailbox, InMemoryMailbox, shared_store
from pillarbox.mailbox.protocol import AsyncMailbox, Mailbox

T = TypeVar("T")

_KNOWN = "memory:name"


@overload
def open_mailbox(url: str, body_type: type[T], **options: Any) -> Mailbox[T]: ...
@overload
def open_mailbox(url: str, body_type: Any = Any, **options: Any) -> Mailbox[Any]: ...
def open_mailbox(url: str, body_type: Any = Any, **options: Any) -> Mailbox[Any]:
    """Open the mailbox that a URL names; options are those of its class.

    >>> box = open_mailbox("memory:greetings", str)
    >>> _ = box.send("hello")
    >>> [message.body for message in box.receive()]
    ['hello']
    """
    return InMemoryMailbox(_memory_name(url), body_type, store=shared_store, **options)


@overload
def open_async_mailbox(url: str, body_type: type[T], **options: Any) -> AsyncMailbox[T]: ...
@overload
def open_async_mailbox(url: str, body_type: Any = Any, **options: Any) -> AsyncMailbox[Any]: ...
def open_async_mailbox(url: str, body_type: Any = Any, **options: Any) -> AsyncMailbox[Any]:
    """`open_mailbox` for asyncio."""
    return AsyncInMemoryMailbox(_memory_name(url), body_type, store=shared_store, **options)


def _memory_name(url: str) -> str:
    scheme, colon, name = limits.text("url", url).partition(":")
    if scheme != "memory" or not colon:
        raise InvalidParameterError("url", url, f"of the form {_KNOWN}")
    return name
