"""open_mailbox(url, body_type): one word for every backend."""

from __future__ import annotations

from typing import Any, TypeVar, overload

from pillarbox.core import limits
from pillarbox.core.errors import InvalidParameterError
from pillarbox.mailbox.durable import AsyncDurableMailbox, DurableMailbox
from pillarbox.mailbox.memory import AsyncInMemoryMailbox, InMemoryMailbox, shared_store
from pillarbox.mailbox.protocol import AsyncMailbox, Mailbox

T = TypeVar("T")

_KNOWN = "memory:name or file:directory/name"


@overload
def open_mailbox(url: str, body_type: type[T], **options: Any) -> Mailbox[T]: ...
@overload
def open_mailbox(url: str, body_type: Any = Any, **options: Any) -> Mailbox[Any]: ...
def open_mailbox(url: str, body_type: Any = Any, **options: Any) -> Mailbox[Any]:
    """Open the mailbox that a URL names; options are those of its class.

    Examples:
        >>> box = open_mailbox("memory:greetings", str)
        >>> _ = box.send("hello")
        >>> [message.body for message in box.receive()]
        ['hello']
    """
    scheme, place = _split(url)
    if scheme == "memory":
        return InMemoryMailbox(place, body_type, store=shared_store, **options)
    path, name = _in_directory(place)
    return DurableMailbox(name, body_type, path=path, **options)


@overload
def open_async_mailbox(url: str, body_type: type[T], **options: Any) -> AsyncMailbox[T]: ...
@overload
def open_async_mailbox(url: str, body_type: Any = Any, **options: Any) -> AsyncMailbox[Any]: ...
def open_async_mailbox(url: str, body_type: Any = Any, **options: Any) -> AsyncMailbox[Any]:
    """`open_mailbox` for asyncio."""
    scheme, place = _split(url)
    if scheme == "memory":
        return AsyncInMemoryMailbox(place, body_type, store=shared_store, **options)
    path, name = _in_directory(place)
    return AsyncDurableMailbox(name, body_type, path=path, **options)


def _split(url: str) -> tuple[str, str]:
    scheme, colon, place = limits.text("url", url).partition(":")
    if scheme not in ("memory", "file") or not colon:
        raise InvalidParameterError("url", url, f"of the form {_KNOWN}")
    return scheme, place


def _in_directory(place: str) -> tuple[str, str]:
    """file:./data/orders is the mailbox `orders` of the store in `./data`."""
    path, slash, name = place.removeprefix("//").rpartition("/")
    return (path or "/" if slash else "."), name
