"""The client side of HTTP/1.1, without I/O: request headers, and responses and their meaning.

Supports only responses with a Content-Length, which the broker always sends.
"""

from __future__ import annotations

import os
import re
import socket
import sys
from typing import Any, NamedTuple

from msgspec import MsgspecError

from pillarbox.core.errors import MailboxError
from pillarbox.mailbox.broker.address import Address
from pillarbox.mailbox.broker.errors import AccessDeniedError, error_of
from pillarbox.mailbox.broker.wire import PATH, Failed, decode_results

_LENGTH = b"\r\ncontent-length:"
_CLOSE = b"\r\nconnection: close"
_HEAD_BYTES_MAX = 65_536


def head_of(address: Address, queue: str, authorization: str = "") -> bytes:
    """Return the request head up to the length. The media type keeps out web pages (CSRF)."""
    proof = f"Authorization: {authorization}\r\n" if authorization else ""
    return (
        f"POST {address.base}{PATH}/{queue} HTTP/1.1\r\nHost: {address.authority}\r\n"
        f"User-Agent: {_user_agent()}\r\n{proof}"
        "Content-Type: application/msgpack\r\nContent-Length: "
    ).encode("latin-1")


def _user_agent() -> str:
    """Return host, pid and program, which the broker's dashboard shows."""
    program = os.path.basename(sys.argv[0]) if sys.argv[0] not in ("", "-c", "-m") else "python"
    return re.sub(r"[^!-~ ]", "?", f"pillarbox {socket.gethostname()}:{os.getpid()} {program}")


class Answer(NamedTuple):
    status: int
    body: bytes
    last: bool  # Connection: close


class BadAnswerError(ConnectionError):
    """The response is not valid HTTP as the broker sends it."""


class AnswerReader:
    """Parses one response at a time."""

    __slots__ = ("_data", "_end", "_head")

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Discard an incomplete response."""
        self._data, self._head, self._end = bytearray(), b"", 0

    def feed(self, data: bytes) -> Answer | None:
        """Add data; return the response once it is complete."""
        self._data += data
        if not self._head:
            body_at = self._data.find(b"\r\n\r\n") + 4
            if body_at < 4:
                if len(self._data) > _HEAD_BYTES_MAX:
                    raise BadAnswerError("the head of the response has no end")
                return None
            self._head = bytes(self._data[:body_at]).lower()
            self._end = body_at + _length_in(self._head)
        if len(self._data) < self._end:
            return None
        answer = _answer(self._head, bytes(self._data[len(self._head) : self._end]))
        self.clear()
        return answer


def _length_in(head: bytes) -> int:
    start = head.find(_LENGTH)
    text = head[start + len(_LENGTH) : head.find(b"\r", start + 2)].strip()
    if start < 0 or not text.isdigit():
        raise BadAnswerError("the response has no length")
    return int(text)


def _answer(head: bytes, body: bytes) -> Answer:
    if not head.startswith(b"http/1.") or not head[9:12].isdigit():
        raise BadAnswerError(f"the response is not HTTP: {head[:40]!r}")
    return Answer(int(head[9:12]), body, _CLOSE in head)


def good(answer: Answer, address: Address) -> Answer:
    """Return the response if it is valid; raise OSError if a retry may help."""
    if answer.status == 200:
        return answer
    text = answer.body[:300].decode("utf-8", "replace")
    if answer.status in (408, 429, 502, 503, 504):
        raise ConnectionRefusedError(f"{answer.status}: {text}")
    if answer.status in (401, 403):
        raise AccessDeniedError(
            f"the broker at {address.origin} refused these credentials ({text}): put a key and "
            "its secret in the URL, http://key:secret@host:port/name"
        )
    if answer.status == 404:
        raise _no_broker(address)
    raise MailboxError(f"the broker at {address.origin} returned status {answer.status}: {text}")


def results_of(answer: Answer, address: Address) -> list[Any]:
    """Return the result of each command in a response; raise if the only one failed."""
    try:
        results = decode_results(answer.body)
    except (MsgspecError, ValueError):
        raise _no_broker(address) from None
    if len(results) == 1 and results[0].__class__ is Failed:
        raise error_of(results[0])
    return results


def _no_broker(address: Address) -> MailboxError:
    return MailboxError(f"there is no Pillarbox broker at {address.origin}: check the URL")
