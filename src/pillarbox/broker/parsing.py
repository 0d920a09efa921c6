"""Bytes to requests: every limit of a head and a body, and a memory of heads.

A client sends the same head again and again. One that was parsed before, byte for byte, means
what it meant then; only what is new is parsed. Heads that carry a signature are not kept.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

import httptools

from pillarbox.broker import limits

END: Final = b"\r\n\r\n"
_KEPT_MAX: Final = 1_000
_KEPT_BYTES_MAX: Final = 1_024
_NEVER_KEPT: Final = frozenset(
    ("authorization", "cookie", "expect", "transfer-encoding", "upgrade")
)


class Head(NamedTuple):
    """What comes before the body of a request."""

    method: str
    path: str
    query: str
    headers: dict[str, str]  # shared by requests with the same head: nobody may change it
    length: int  # of the body


class Heads(dict[bytes, Head]):
    """Heads of whole requests that were read lately, by their bytes."""

    def learn(self, data: bytes, head: Head | None) -> None:
        """`data` has been read, and its last request had this head."""
        if head is None or not _NEVER_KEPT.isdisjoint(head.headers):
            return
        key = data[: data.find(END) + len(END)]
        if len(key) > _KEPT_BYTES_MAX or len(data) != len(key) + head.length:
            return  # it was more than this one request
        if key.count(b"\n") != key.count(b"\r\n"):
            return  # the parser may have seen its end elsewhere
        if len(self) >= _KEPT_MAX:
            self.clear()
        self[key] = head


Taken = Callable[[Head, bytes, bool], None]  # head, body, whether to keep the connection
Check = Callable[[str, dict[str, str]], None]  # of method and fields; LimitError refuses them


class Parser:
    """The requests of one connection."""

    def __init__(
        self, heads: Heads, check: Check, taken: Taken, begun: Callable[[], float]
    ) -> None:
        self._heads = heads
        self._check = check
        self._taken = taken
        self._time = begun
        self._parser = httptools.HttpRequestParser(self)
        self.began = 0.0  # when the first byte of the request under way came; 0 if none is
        self.in_body = False
        self.body_bytes = 0
        self.proceed = False  # the client waits for a word before it sends the body
        self.checked = False  # whether whoever sends the request under way has shown a key
        self._last: Head | None = None  # that of the last request, if the client may go on
        self.on_message_begin()

    def feed(self, data: bytes) -> None:
        """Take what there is; LimitError, or an error of the parser, if it is no request."""
        starts = not self.began
        if starts:
            self.began = self._time()
        self._last = None
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            cause = error.__context__
            raise cause if isinstance(cause, limits.LimitError) else error from None
        if starts and not self.began:
            self._heads.learn(data, self._last)
        if self.began and not self.in_body:
            self._head_bytes += len(data)
            if self._head_bytes > 2 * limits.HEAD_BYTES_MAX:  # one field that does not end
                raise limits.head_too_large()

    @property
    def held_bytes(self) -> int:
        """How much of a request under way is in memory."""
        return self._head_bytes + self.body_bytes if self.began else 0

    def head(self) -> Head:
        """That of the request under way, once it is in its body."""
        path, _, query = self._url.partition(b"?")
        if not path.startswith(b"/"):
            path = httptools.parse_url(self._url).path or b"/"
        return Head(
            self._parser.get_method().decode("latin-1"),
            path.decode("latin-1"),
            query.decode("latin-1"),
            self._headers,
            self.body_bytes,
        )

    def drop(self) -> None:
        """Forget the request under way; no more is read."""
        self.began = 0.0
        self.proceed = False
        self.on_message_begin()

    def close(self) -> None:
        """Break the circles of references, so that memory does not wait to be collected."""
        self.drop()
        del self._parser, self._check, self._taken

    # -- what httptools says -----------------------------------------------------------------

    def on_message_begin(self) -> None:
        self._url = b""
        self._headers: dict[str, str] = {}
        self._fields = 0
        self._head_bytes = 0
        self._body: bytes | bytearray = b""
        self.body_bytes = 0
        self.length = limits.BODY_BYTES_MAX  # unless it says how long it is
        self.in_body = False
        self.checked = False

    def on_url(self, url: bytes) -> None:
        self._url += url
        self._head_bytes += len(url)
        if self._head_bytes > limits.HEAD_BYTES_MAX:
            raise limits.head_too_large()

    def on_header(self, name: bytes, value: bytes) -> None:
        if self.in_body:
            return  # a trailer changes nothing
        self._fields += 1
        self._head_bytes += len(name) + len(value) + 4
        if self._head_bytes > limits.HEAD_BYTES_MAX or self._fields > limits.FIELDS_MAX:
            raise limits.head_too_large()
        key = name.decode("latin-1").lower()
        text = value.decode("latin-1")
        if key in self._headers:
            if key == "host":
                raise limits.LimitError(400, "MalformedHttpRequest", "More than one Host field.")
            text = f"{self._headers[key]},{text}"
        self._headers[key] = text

    def on_headers_complete(self) -> None:
        self.in_body = True
        headers = self._headers
        if "content-length" in headers:
            self.length = int(headers["content-length"])
            if self.length > limits.BODY_BYTES_MAX:
                raise limits.body_too_large()
        self._check(self._parser.get_method().decode("latin-1"), headers)
        if "expect" in headers and headers["expect"].lower() == "100-continue":
            self.proceed = True
        self.began = self._time()

    def on_body(self, body: bytes) -> None:
        self.body_bytes += len(body)
        if self.body_bytes > limits.BODY_BYTES_MAX:
            raise limits.body_too_large()
        if self.body_bytes == len(body):
            self._body = body
            return
        if not isinstance(self._body, bytearray):  # not a list: small parts would cost more
            self._body = bytearray(self._body)
        self._body += body

    def on_message_complete(self) -> None:
        head, body = self.head(), bytes(self._body)
        self.began = 0.0
        self.in_body = False
        self.proceed = False  # it did not wait
        self._body = b""  # an idle connection keeps none
        lasting = self._parser.should_keep_alive()
        self._last = head if lasting else None
        self._taken(head, body, lasting)
