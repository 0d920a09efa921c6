"""Validation of mailbox options, and reading them from a URL, for every backend."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeVar

from pillarbox.core import limits
from pillarbox.core.errors import InvalidParameterError
from pillarbox.core.queue import Redelivery
from pillarbox.mailbox.protocol import DeadLetterPolicy

M = TypeVar("M")
A = TypeVar("A")

_CAPACITY_MAX = 1 << 40
_RETRY_SECONDS_MAX = 31_536_000
_FLAGS = ("create", "fair", "journal", "pooler")
_SECONDS = ("replica_seconds", "retry_seconds")
_WRITTEN_FLAGS = {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}


def check_options(options: Mapping[str, Any], allowed: Collection[str]) -> None:
    """Raise `InvalidParameterError` for an unknown or invalid option."""
    for option in options.keys() - set(allowed):
        raise InvalidParameterError("option", option, f"one of {', '.join(allowed)}")
    limits.one_of("redelivery", options.get("redelivery", "tail"), ("tail", "original"))
    for flag in options.keys() & set(_FLAGS):
        if not isinstance(options[flag], bool):
            raise InvalidParameterError(flag, options[flag], "True or False")
    policy = options.get("dead_letters")
    if policy is not None and not isinstance(policy, DeadLetterPolicy):
        raise InvalidParameterError("dead_letters", policy, "a DeadLetterPolicy or None")
    for name in options.keys() & set(_SECONDS):
        limits.seconds(name, options[name], _RETRY_SECONDS_MAX)
    if options.get("fair") and options.get("redelivery") == "tail":
        raise InvalidParameterError("redelivery", "tail", "'original' for a fair queue")
    if options.get("capacity") is not None:
        limits.whole("capacity", options["capacity"], 1, _CAPACITY_MAX)
    if "max_body_bytes" in options:
        limits.whole("max_body_bytes", options["max_body_bytes"], 1, limits.BODY_BYTES_CEILING)


def default_redelivery(options: Mapping[str, Any]) -> Redelivery:
    """Return the redelivery order of a new queue with these options."""
    otherwise = "original" if options.get("fair") else "tail"
    redelivery: Redelivery = options.get("redelivery", otherwise)
    return redelivery


def take_options(query: dict[str, str], allowed: Collection[str]) -> dict[str, Any]:
    """Remove the mailbox options from a URL's query; the rest belongs to the server."""
    return {name: _read(name, query.pop(name)) for name in list(query) if name in allowed}


def openers(
    mailbox: Callable[..., M],
    async_mailbox: Callable[..., A],
    read: Callable[[str], tuple[str, dict[str, Any]]],
) -> tuple[Callable[..., M], Callable[..., A]]:
    """Return `open_url` and `open_async_url` of a backend; `read` parses a URL."""

    def open_url(url: str, body_type: Any = Any, **options: Any) -> M:
        """Open the mailbox that a URL names; see `open_mailbox`."""
        name, from_url = read(url)
        return mailbox(name, body_type, **from_url | options)

    def open_async_url(url: str, body_type: Any = Any, **options: Any) -> A:
        """`open_url` for asyncio."""
        name, from_url = read(url)
        return async_mailbox(name, body_type, **from_url | options)

    return open_url, open_async_url


def _read(name: str, text: str) -> Any:
    """Return the value of an option in a URL."""
    read, allowed = _READ.get(name, (str, "a text"))
    try:
        return read(text)
    except (ValueError, KeyError):
        raise InvalidParameterError(name, text, allowed) from None


_READ: dict[str, tuple[Callable[[str], Any], str]] = {
    **dict.fromkeys(
        (*_FLAGS, "history"), (lambda text: _WRITTEN_FLAGS[text.lower()], "true or false")
    ),
    **dict.fromkeys(("capacity", "max_body_bytes", "replicas"), (int, "a whole number")),
    **dict.fromkeys(_SECONDS, (float, "a number of seconds")),
}
