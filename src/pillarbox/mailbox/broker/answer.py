"""The client side of HTTP/1.1, without I/O: request headers, and a response parser.

Supports only responses with a Content-Length, which the broker always sends.
"""

from __future__ import annotations

import os
import re
import socket
import sys
from typing import NamedTuple

from pillarbox.mailbox.broker.address import Address
from pillarbox.mailbox.broker.wire import PATH

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
