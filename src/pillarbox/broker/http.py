"""Requests, responses, and the route table: what HTTP handlers see.

A handler takes a `Request` and returns a `Response`, or an awaitable of one. It runs on the
event loop and must never block. A response waits for its `confirmation`; `unsent` is called if
the client disconnected before the response was written.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from http import HTTPStatus

from msgspec import Struct

_REASONS = {each.value: each.phrase for each in HTTPStatus}
NOT_FOR_OTHER_SITES: Mapping[str, str] = {  # pages of other sites can't embed it
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Resource-Policy": "same-origin",
}
_NO_HEADERS: Mapping[str, str] = {}


class Request(Struct, eq=False, gc=False):
    """A complete request. Header names are in lower case; path and query are as sent."""

    method: str
    path: str
    query: str = ""
    headers: Mapping[str, str] = _NO_HEADERS
    body: bytes = b""
    peer: str = ""
    secure: bool = False

    @property
    def origin(self) -> str:
        """The base of URLs in responses: scheme and host as the client used them."""
        scheme = "https" if self.secure else "http"
        return f"{scheme}://{self.headers.get('host') or 'localhost'}"


class Confirmation:
    """A write confirmation, shared by all responses that wait for the same sync."""

    __slots__ = ("_callbacks", "error", "is_done")

    def __init__(self) -> None:
        self.is_done = False
        self.error: Exception | None = None  # why the sync failed
        self._callbacks: list[Callable[[], object]] = []

    @property
    def waiting(self) -> int:
        """The number of responses that wait for it."""
        return len(self._callbacks)

    def add_done_callback(self, callback: Callable[[], object]) -> None:
        """Call this when the sync is done; must not be done already."""
        self._callbacks.append(callback)

    def finish(self, error: Exception | None = None) -> int:
        """Release all responses in order, and return how many there were."""
        self.error, self.is_done = error, True
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback()
        return len(callbacks)


class Response(Struct, eq=False, gc=False):
    """A response. `if_unconfirmed` creates its replacement if the confirmation fails."""

    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = _NO_HEADERS
    confirmation: Confirmation | None = None
    if_unconfirmed: Callable[[Exception], Response] | None = None
    unsent: Callable[[], object] | None = None

    def head(self, date: str, keep_alive: bool, length: int | None) -> bytes:
        """Encode status line and header; without a length, the body is chunked."""
        size = "Transfer-Encoding: chunked" if length is None else f"Content-Length: {length}"
        fields = "".join([f"{name}: {value}\r\n" for name, value in self.headers.items()])
        close = "" if keep_alive else "Connection: close\r\n"
        reason = _REASONS[self.status]
        return (
            f"HTTP/1.1 {self.status} {reason}\r\nDate: {date}\r\n{fields}{close}{size}\r\n\r\n"
        ).encode("latin-1")


class StreamingResponse(Response, eq=False, kw_only=True):
    """A chunked response of any length, such as server-sent events."""

    chunks: AsyncIterator[bytes]

    def head(self, date: str, keep_alive: bool, length: int | None = None) -> bytes:
        return Response.head(self, date, keep_alive, None)


Answer = Response | Awaitable[Response]
Handler = Callable[[Request], Answer]


class Routes:
    """Maps the first segment of a path to a handler, with a default for all others."""

    def __init__(self, everything: Handler) -> None:
        self.everything = everything
        self._by_segment: dict[str, Handler] = {}
        self._home: Handler | None = None

    def add(self, prefix: str, handler: Handler) -> None:
        """Route `/name` and everything below it; `/` is a browser's GET of the root."""
        segment = prefix.strip("/").partition("/")[0]
        if segment:
            self._by_segment[segment] = handler
        else:
            self._home = handler

    def handle(self, request: Request) -> Answer:
        if request.path != "/":
            segment = request.path[1:].partition("/")[0]
            return self._by_segment.get(segment, self.everything)(request)
        if self._home is not None and request.method in ("GET", "HEAD") and not request.query:
            return self._home(request)
        return self.everything(request)
