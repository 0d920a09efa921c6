"""open_mailbox(url, body_type): one word for every backend.

A scheme names a module, which is imported when a URL first asks for it and has two functions,
`open_url(url, body_type, **options)` and `open_async_url`. Nothing else is needed to plug in.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, NamedTuple, TypeVar, overload

from pillarbox.core import limits
from pillarbox.core.errors import InvalidParameterError
from pillarbox.mailbox.durable import AsyncDurableMailbox, DurableMailbox
from pillarbox.mailbox.memory import AsyncInMemoryMailbox, InMemoryMailbox, shared_store
from pillarbox.mailbox.protocol import AsyncMailbox, Mailbox

T = TypeVar("T")


class _Backend(NamedTuple):
    """Where a scheme is opened, and how its URLs look."""

    opener: Any
    form: str


class _Memory:
    """memory:orders is the mailbox `orders` of this process."""

    @staticmethod
    def open_url(url: str, body_type: Any, **options: Any) -> Mailbox[Any]:
        return InMemoryMailbox(_place(url), body_type, store=shared_store, **options)

    @staticmethod
    def open_async_url(url: str, body_type: Any, **options: Any) -> AsyncMailbox[Any]:
        return AsyncInMemoryMailbox(_place(url), body_type, store=shared_store, **options)


class _File:
    """file:./data/orders is the mailbox `orders` of the store in `./data`."""

    @staticmethod
    def open_url(url: str, body_type: Any, **options: Any) -> Mailbox[Any]:
        path, name = _in_directory(url)
        return DurableMailbox(name, body_type, path=path, **options)

    @staticmethod
    def open_async_url(url: str, body_type: Any, **options: Any) -> AsyncMailbox[Any]:
        path, name = _in_directory(url)
        return AsyncDurableMailbox(name, body_type, path=path, **options)


_BROKER = _Backend("pillarbox.mailbox.broker", "http://host:9324/name")
_REDIS = _Backend("pillarbox.mailbox.redis", "redis://host/name")
_SQS = _Backend("pillarbox.mailbox.sqs", "sqs://region/name")

_SCHEMES = {
    "memory": _Backend(_Memory, "memory:name"),
    "file": _Backend(_File, "file:directory/name"),
    "http": _BROKER,
    "https": _BROKER,
    "redis": _REDIS,
    "rediss": _REDIS,
    "redis+cluster": _REDIS,
    "redis+sentinel": _REDIS,
    "rediss+cluster": _REDIS,
    "rediss+sentinel": _REDIS,
    "sqs": _SQS,
    "sqs+http": _SQS,
    "sqs+https": _SQS,
}


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
    mailbox: Mailbox[Any] = opener_of(url).open_url(url, body_type, **options)
    return mailbox


@overload
def open_async_mailbox(url: str, body_type: type[T], **options: Any) -> AsyncMailbox[T]: ...
@overload
def open_async_mailbox(url: str, body_type: Any = Any, **options: Any) -> AsyncMailbox[Any]: ...
def open_async_mailbox(url: str, body_type: Any = Any, **options: Any) -> AsyncMailbox[Any]:
    """`open_mailbox` for asyncio. It returns at once: see `AsyncMailbox` for what opens it."""
    mailbox: AsyncMailbox[Any] = opener_of(url).open_async_url(url, body_type, **options)
    return mailbox


def opener_of(url: str) -> Any:
    """The module that opens a URL's mailboxes; some tell of their queues as well."""
    scheme, colon, _ = limits.text("url", url).partition(":")
    backend = _SCHEMES.get(scheme)
    if backend is None or not colon:
        forms = ", ".join(each.form for each in dict.fromkeys(_SCHEMES.values()))
        raise InvalidParameterError("url", url, f"of the form {forms}")
    if not isinstance(backend.opener, str):
        return backend.opener
    return import_module(backend.opener)


def _place(url: str) -> str:
    return url.partition(":")[2]


def _in_directory(url: str) -> tuple[str, str]:
    path, slash, name = _place(url).removeprefix("//").rpartition("/")
    return (path or "/" if slash else "."), name
