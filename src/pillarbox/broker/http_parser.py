"""A strict HTTP/1.1 request parser: refuses whatever RFC 9112 leaves ambiguous.

Optimised for complete requests that arrive in one read with a different head each time, as SDKs
send them; a parser with a callback for each field takes twice as long. Lines end in CRLF, a body
has one Content-Length or is chunked, and no field is folded or has control characters, which
rules out request smuggling through proxies.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final
from urllib.parse import urlsplit

from pillarbox.broker import limits
from pillarbox.broker.http import Request
from pillarbox.broker.limits import LimitError

_REQUEST_LINE: Final = re.compile(
    r"(GET|HEAD|POST|PUT|DELETE|OPTIONS|PATCH) "
    r"(/[!-~]*|https?://[A-Za-z0-9.:\[\]-]+(?:[/?][!-~]*)?) HTTP/1\.([01])\Z"
)
_BEGINNING: Final = re.compile(rb"[A-Z]{1,7}(?: |\Z)")  # of a request, perhaps incomplete
_WORD: Final = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_NAME: Final = re.compile(_WORD + r"\Z")
_CHUNK: Final = re.compile(rf"([0-9A-Fa-f]{{1,7}})(?:;{_WORD}(?:={_WORD})?)*\Z".encode())
_TEXT: Final = bytes({*range(256)} - {*range(32), 127} | {9})  # all but control characters
_FRAMING: Final = frozenset(("content-length", "transfer-encoding"))
_END: Final = b"\r\n\r\n"
_CR: Final = 13
_CHUNK_LINE_MAX: Final = 1_024
_NAMES_MAX: Final = 1_000
_NAME_CHARS_MAX: Final = 100  # longer ones are not cached; strangers send them

Taken = Callable[[Request, bool], None]  # a complete request, and whether to keep alive
Check = Callable[[Request], None]  # of a head; raises LimitError to refuse it


class RequestParser:
    """Parses the requests of one connection."""

    def __init__(
        self, peer: str, secure: bool, check: Check, taken: Taken, time: Callable[[], float]
    ) -> None:
        self._peer = peer
        self._secure = secure
        self._check = check
        self._taken = taken
        self._time = time
        self._rest = bytearray()  # read but not parsed
        self._chunks: bytearray | None = None  # a chunked body so far
        self._keep_alive = True
        self.began = 0.0  # when the incomplete head or body began; 0 if there is none
        self.request: Request | None = None  # the one whose body is incomplete
        self.length = limits.BODY_BYTES_MAX  # of that body, as far as is known
        self.proceed = False  # whether the client waits for "100 Continue"
        self.checked = False  # whether the key of that request was checked

    @property
    def body_bytes(self) -> int:
        """How much of an incomplete body has arrived."""
        return len(self._rest) + len(self._chunks or b"")

    @property
    def held_bytes(self) -> int:
        """How much of an incomplete request is in memory."""
        head = 0 if self.request is None else sum(map(len, self.request.headers.values()))
        return head + self.body_bytes

    def feed(self, data: bytes) -> None:
        """Parse new data; raise LimitError if it is not a request or exceeds a limit."""
        source: bytes | bytearray = data
        if self._rest:
            self._rest += data
            source = self._rest
        at, size = 0, len(source)
        while at < size or self.request is not None:
            request = self.request
            if request is None:
                end = source.find(_END, at)
                if end < 0 or source[at] == _CR:
                    start, at = at, _skip_blank_lines(source, at)
                    if at > start:
                        continue
                    _check_beginning(source, at)
                    break
                request = self._read_head(bytes(source[at:end]))
                at = end + 4
            at, body = self._read_body(source, at)
            if body is None:
                break
            request.body = body
            self.began = 0.0
            self.request = self._chunks = None
            self.proceed = self.checked = False
            self._taken(request, self._keep_alive)
        if source is data:
            if at < len(data):
                self._rest = bytearray(data[at:])
        else:
            del self._rest[:at]
        if not self.began and (self._rest or self.request is not None):
            self.began = self._time()

    def drop(self) -> None:
        """Drop the incomplete request; nothing more is parsed."""
        self._rest = bytearray()
        self.began = 0.0
        self.request = self._chunks = None
        self.proceed = False

    def close(self) -> None:
        """Break reference cycles, so that memory is freed at once."""
        self.drop()
        del self._check, self._taken

    def _read_head(self, head: bytes) -> Request:
        if len(head) > limits.HEAD_BYTES_MAX:
            raise limits.head_too_large()
        line, *fields = _lines(head)
        if len(fields) > limits.FIELDS_MAX:
            raise limits.head_too_large()
        found = _REQUEST_LINE.match(line)
        if found is None:
            raise malformed("the request line is not valid")
        method, path, version = found.groups()
        query = ""
        if "?" in path or path[0] != "/":
            parts = urlsplit(path)
            path, query = parts.path or "/", parts.query
        headers = _fields(fields)
        request = Request(method, path, query, headers, b"", self._peer, self._secure)
        self._keep_alive = version == "1"
        if "connection" in headers:
            self._keep_alive = _keeps_alive(headers["connection"], version)
        self.length = _length(headers) if "content-length" in headers else 0
        if "transfer-encoding" in headers:
            _check_chunked(headers)
            self.length, self._chunks = limits.BODY_BYTES_MAX, bytearray()
        self._check(request)
        if "expect" in headers:
            self.proceed = headers["expect"].lower() == "100-continue"
        self.began = 0.0
        self.request = request
        return request

    def _read_body(self, source: bytes | bytearray, at: int) -> tuple[int, bytes | None]:
        """Return the new position, and the body if it is complete."""
        if self._chunks is not None:
            return self._read_chunks(source, at, self._chunks)
        end = at + self.length
        return (at, None) if end > len(source) else (end, bytes(source[at:end]))

    def _read_chunks(
        self, source: bytes | bytearray, at: int, chunks: bytearray
    ) -> tuple[int, bytes | None]:
        while (end := source.find(b"\r\n", at)) >= 0:
            found = _CHUNK.match(source[at:end])
            if found is None or end - at > _CHUNK_LINE_MAX:
                raise malformed("the size of a chunk is not valid")
            size = int(found[1], 16)
            if not size:
                after = _skip_trailers(source, at, end)
                return (at, None) if after < 0 else (after, bytes(chunks))
            start, stop = end + 2, end + 2 + size
            if len(chunks) + size > limits.BODY_BYTES_MAX:
                raise limits.body_too_large()
            if stop + 2 > len(source):
                return at, None
            if source[stop : stop + 2] != b"\r\n":
                raise malformed("a chunk is longer than its size")
            chunks += source[start:stop]
            at = stop + 2
        if len(source) - at > _CHUNK_LINE_MAX:
            raise malformed("the size of a chunk is not valid")
        return at, None


def _skip_trailers(source: bytes | bytearray, at: int, end: int) -> int:
    """Return the end of the request after ignored trailers; -1 if it is incomplete."""
    stop = source.find(_END, end)
    if (len(source) if stop < 0 else stop) - at > limits.HEAD_BYTES_MAX:
        raise limits.head_too_large()
    if stop < 0:
        return -1
    if not _FRAMING.isdisjoint(_fields(_lines(bytes(source[end:stop]))[1:])):
        raise malformed("a trailer says how long the body is")
    return stop + 4


def malformed(why: str) -> LimitError:
    return LimitError(400, "MalformedHttpRequest", f"Bad HTTP request: {why}.")


def _skip_blank_lines(source: bytes | bytearray, at: int) -> int:
    """Skip the extra line break that old clients send after a body."""
    while source.startswith(b"\r\n", at):
        at += 2
    return at


def _check_beginning(source: bytes | bytearray, at: int) -> None:
    """Refuse data that can't become a request, before all of it has arrived."""
    if len(source) - at > limits.HEAD_BYTES_MAX:
        raise limits.head_too_large()
    if at < len(source) and source[at:] != b"\r" and not _BEGINNING.match(source[at : at + 8]):
        raise malformed("the request line is not valid")
    if source.count(b"\n", at) != source.count(b"\r\n", at):
        raise malformed("lines must end in CRLF")


def _lines(text: bytes) -> list[str]:
    """Split at CRLF; refuse control characters other than tabs."""
    lines = text.decode("latin-1").split("\r\n")
    if text.translate(None, _TEXT) != b"\r\n" * (len(lines) - 1):
        raise malformed("a control character is not allowed")
    return lines


_names: dict[str, str] = {}  # header names as clients write them -> in lower case


def _fields(lines: list[str]) -> dict[str, str]:
    try:
        pairs = [line.split(":", 1) for line in lines]
        headers = {_names[name]: value.strip(" \t") for name, value in pairs}
    except (KeyError, ValueError):
        headers = {}
    return headers if len(headers) == len(lines) else _unusual_fields(lines)


def _unusual_fields(lines: list[str]) -> dict[str, str]:
    """Parse header fields with names that are new, invalid or repeated."""
    headers: dict[str, str] = {}
    for line in lines:
        written, colon, value = line.partition(":")
        name, value = _name(written, colon), value.strip(" \t")
        if name == "host" and name in headers:
            raise malformed("more than one Host field")
        headers[name] = f"{headers[name]},{value}" if name in headers else value
    return headers


def _name(written: str, colon: str) -> str:
    if not colon or not _NAME.match(written):
        raise malformed("the name of a field is not valid")
    if len(written) > _NAME_CHARS_MAX:
        return written.lower()
    if len(_names) >= _NAMES_MAX:
        _names.clear()
    name = _names[written] = written.lower()
    return name


def _keeps_alive(connection: str, version: str) -> bool:
    wishes = {each.strip().lower() for each in connection.split(",")}
    return "close" not in wishes and (version == "1" or "keep-alive" in wishes)


def _length(headers: dict[str, str]) -> int:
    length = limits.decimal(headers["content-length"])
    if length is None:
        raise malformed("the Content-Length is not a number")
    if length > limits.BODY_BYTES_MAX:
        raise limits.body_too_large()
    return length


def _check_chunked(headers: dict[str, str]) -> None:
    if "content-length" in headers or headers["transfer-encoding"].lower() != "chunked":
        raise malformed("a body is chunked, or has one Content-Length")
