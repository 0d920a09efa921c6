"""One client's connection: bytes to requests, answers to bytes, in the order of the requests.

Requests of one connection are started as they arrive and answered in order, so a client may
pipeline. Everything a client sends has a limit and a deadline; whoever breaks one is told why
with a 4xx, if it still listens, and the connection ends. Nothing here knows of queues.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Generator
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, cast

import httptools

from pillarbox.broker import limits
from pillarbox.broker.http import Request, Response, StreamingResponse
from pillarbox.logger import logger

if TYPE_CHECKING:
    from pillarbox.broker.site import Site

NEVER: Final = float("inf")

Callback = Callable[[], object]


class _Exchange:
    """A request whose answer is not written yet. Answers leave in the order of requests."""

    __slots__ = ("keep_alive", "only_head", "pending", "ready", "response")

    def __init__(self, *, keep_alive: bool, only_head: bool) -> None:
        self.keep_alive = keep_alive
        self.only_head = only_head
        self.response: Response | None = None
        self.ready = False
        self.pending: asyncio.Future[Response] | None = None


class Connection(asyncio.Protocol):
    """A connection, from accept to close."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._loop = site.loop
        self._parser = httptools.HttpRequestParser(self)
        self._exchanges: deque[_Exchange] = deque()
        self._out: list[bytes] = []
        self._unflushed: list[Callback] = []  # of answers that are not out of this process yet
        self._unread: list[Callback] = []  # of answers that are, and no word since
        self._clogged = False  # the client does not read as fast as we write
        self._reading = True
        self._closing = False
        self._streaming: asyncio.Task[None] | None = None
        self.deadline = NEVER
        self._began = 0.0  # when the first byte of the request under way came; 0 if none is
        self._in_body = False
        self._start_over()

    def _start_over(self) -> None:
        self._url = b""
        self._headers: dict[str, str] = {}
        self._fields = 0
        self._head_bytes = 0
        self._body: list[bytes] = []
        self._body_bytes = 0
        self._in_body = False

    # -- what the transport says -------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        peer = transport.get_extra_info("peername")
        self._peer = str(peer[0]) if isinstance(peer, tuple) else "local"
        self._secure = transport.get_extra_info("sslcontext") is not None
        if not self._secure:  # over TLS, uvloop pauses at such a limit and never resumes
            self._transport.set_write_buffer_limits(0)  # tell us of every byte that has to wait
        if not self._site.admit(self):
            self.refuse(503, "ServiceUnavailable", "Too many connections.")
            return
        self.deadline = self._loop.time() + self._site.idle_seconds

    def connection_lost(self, exc: Exception | None) -> None:
        """Whatever the client did not get goes back where it came from.

        A connection that was reset had bytes that nobody read: the last answer was among them.
        """
        self._site.forget(self)
        self._closing = True
        if self._streaming is not None:
            self._streaming.cancel()
        unsent = self._unflushed + (self._unread if exc is not None else [])
        while self._exchanges:
            exchange = self._exchanges.popleft()
            if exchange.pending is not None:
                exchange.pending.cancel()
            if exchange.response is not None and exchange.response.unsent is not None:
                unsent.append(exchange.response.unsent)
        self._unflushed, self._unread = [], []
        for give_back in unsent:
            give_back()

    def pause_writing(self) -> None:
        self._clogged = True
        self.deadline = self._loop.time() + limits.WRITE_SECONDS_MAX
        self._read_on()

    def resume_writing(self) -> None:
        self._clogged = False
        self._flushed()
        self._rest()
        self._flush()
        self._read_on()

    def data_received(self, data: bytes) -> None:
        if self._closing:
            return
        self._unread = []  # it goes on, so it has read what it waited for
        if not self._began:
            self._began = self._loop.time()
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._closing = True  # the request was answered as if nothing had been offered
        except httptools.HttpParserError as error:
            cause = error.__context__
            if isinstance(cause, limits.LimitError):
                self.refuse(*cause.args)
            else:
                self.refuse(400, "MalformedHttpRequest", f"Bad HTTP request: {error}.")
            return
        if self._began and not self._in_body and not self._closing:
            self._head_bytes += len(data)
            if self._head_bytes > 2 * limits.HEAD_BYTES_MAX:  # one field that does not end
                self.refuse(*limits.head_too_large().args)
                return
        self._flush()
        if self._began:
            self._rest()
        if self._exchanges or self._clogged:
            self._read_on()

    # -- what the parser says ----------------------------------------------------------------

    def on_message_begin(self) -> None:
        self._start_over()

    def on_url(self, url: bytes) -> None:
        self._url += url
        self._head_bytes += len(url)
        if self._head_bytes > limits.HEAD_BYTES_MAX:
            raise limits.head_too_large()

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._in_body:
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
        self._in_body = True
        headers = self._headers
        length = headers.get("content-length")
        if length is not None and int(length) > limits.BODY_BYTES_MAX:
            raise limits.LimitError(413, "RequestEntityTooLarge", "The request body is too large.")
        if "expect" in headers and headers["expect"].lower() == "100-continue":
            self._out.append(b"HTTP/1.1 100 Continue\r\n\r\n")
        self._began = self._loop.time()

    def on_body(self, body: bytes) -> None:
        self._body_bytes += len(body)
        if self._body_bytes > limits.BODY_BYTES_MAX:
            raise limits.LimitError(413, "RequestEntityTooLarge", "The request body is too large.")
        self._body.append(body)

    def on_message_complete(self) -> None:
        if self._closing:
            return
        path, _, query = self._url.partition(b"?")
        if not path.startswith(b"/"):
            path = httptools.parse_url(self._url).path or b"/"
        body = self._body[0] if len(self._body) == 1 else b"".join(self._body)
        request = Request(
            self._parser.get_method().decode("latin-1"),
            path.decode("latin-1"),
            query.decode("latin-1"),
            self._headers,
            body,
            peer=self._peer,
            secure=self._secure,
        )
        self._began = 0.0
        self._in_body = False
        self._answer(request, keep_alive=self._parser.should_keep_alive())

    # -- answering ---------------------------------------------------------------------------

    def _answer(self, request: Request, *, keep_alive: bool) -> None:
        try:
            answer = self._site.handle(request)
        except Exception:  # noqa: BLE001 - a fault of ours must not end the server
            logger.exception("a request failed", path=request.path)
            answer = self._site.broken()
        only_head = request.method == "HEAD"
        plain = answer.__class__ is Response
        if plain and answer.after is None and not self._exchanges and not self._clogged:  # type: ignore[union-attr]
            self._put(cast("Response", answer), keep_alive=keep_alive, only_head=only_head)
            return
        exchange = _Exchange(keep_alive=keep_alive, only_head=only_head)
        self._exchanges.append(exchange)
        if isinstance(answer, Response):
            self._hold(exchange, answer)
        else:
            self._await(exchange, answer)

    def _await(self, exchange: _Exchange, answer: Awaitable[Response]) -> None:
        future = exchange.pending = asyncio.ensure_future(answer)

        def arrived(done: asyncio.Future[Response]) -> None:
            exchange.pending = None
            if done.cancelled():
                return
            error = done.exception()
            if error is not None:
                logger.error("a request failed", exc_info=error)
            response = done.result() if error is None else self._site.broken()
            if self._closing and exchange not in self._exchanges:  # it has hung up
                if response.unsent is not None:
                    response.unsent()
                return
            self._hold(exchange, response)
            self._flush()
            self._read_on()

        future.add_done_callback(arrived)

    def _hold(self, exchange: _Exchange, response: Response) -> None:
        """Write it once what it waits for is confirmed, and it is its turn."""
        exchange.response = response
        if response.after is None:
            exchange.ready = True
            return
        steps = response.after.__await__()
        self._step(exchange, steps)

    def _step(self, exchange: _Exchange, steps: Generator[Any, None, Any]) -> None:
        """Run what is awaited up to its next future: a task of its own would cost more."""
        response = exchange.response
        assert response is not None
        try:
            future = next(steps)
        except StopIteration:
            exchange.ready = True
            return
        except Exception as error:  # noqa: BLE001 - it becomes the answer
            exchange.response = self._failure(response, error)
            exchange.ready = True
            return

        def go_on(_: object) -> None:
            self._step(exchange, steps)
            self._flush()
            self._read_on()

        future.add_done_callback(go_on)

    def _failure(self, response: Response, error: Exception) -> Response:
        if response.otherwise is not None:
            return response.otherwise(error)
        logger.error("a request could not be confirmed", error=str(error))
        return self._site.broken()

    def _put(self, response: Response, *, keep_alive: bool, only_head: bool) -> None:
        body = response.body
        keep_alive = keep_alive and not self._site.stopping
        head = response.head(self._site.date, keep_alive=keep_alive, length=len(body))
        self._out.append(head if only_head else head + body)
        if response.unsent is not None:
            self._unflushed.append(response.unsent)
        if not keep_alive:
            self._closing = True

    def _flush(self) -> None:
        """Write all answers whose turn it is."""
        exchanges = self._exchanges
        while exchanges and exchanges[0].ready and not self._clogged:
            exchange = exchanges.popleft()
            response = cast("Response", exchange.response)
            if isinstance(response, StreamingResponse):
                self._streaming = self._loop.create_task(self._stream(response))
                break
            self._put(response, keep_alive=exchange.keep_alive, only_head=exchange.only_head)
            if self._closing:
                break
        if self._out:
            data, self._out = b"".join(self._out), []
            if self._transport.is_closing():
                unsent, self._unflushed = self._unflushed, []
                for give_back in unsent:
                    give_back()
                return
            self._transport.write(data)
            if not self._clogged:
                self._flushed()
        if self._closing and self._streaming is None and (not exchanges or not exchanges[0].ready):
            self._transport.close()
        elif not exchanges and not self._began:
            self._rest()

    async def _stream(self, response: StreamingResponse) -> None:
        self._closing = True  # nothing follows a stream
        self.deadline = NEVER
        self._transport.write(response.head(self._site.date, keep_alive=False, length=None))
        try:
            async for chunk in response.chunks:
                if self._transport.is_closing() or self._clogged:
                    break  # whoever does not keep up may come again
                if chunk:
                    self._transport.write(b"%x\r\n%b\r\n" % (len(chunk), chunk))
            else:
                self._transport.write(b"0\r\n\r\n")
        finally:
            with suppress(AttributeError):
                await response.chunks.aclose()  # type: ignore[attr-defined]
            self._transport.close()

    def _flushed(self) -> None:
        """All that was written is out of this process."""
        self._unread, self._unflushed = self._unflushed, []

    # -- limits ------------------------------------------------------------------------------

    def _rest(self) -> None:
        """Set the deadline for what the client has to do next."""
        now = self._loop.time()
        if self._clogged:
            return
        if self._exchanges or self._streaming is not None:
            self.deadline = NEVER  # it waits for us
        elif not self._began:
            self.deadline = now + self._site.idle_seconds
        elif self._in_body:
            grace = limits.BODY_SECONDS_GRACE + self._body_bytes / limits.BODY_RATE_MIN
            self.deadline = self._began + grace
        else:
            self.deadline = self._began + limits.HEAD_SECONDS_MAX

    def _read_on(self) -> None:
        """Read while there is room for more requests, and the client reads its answers."""
        wanted = len(self._exchanges) < limits.PIPELINED_MAX and not self._clogged
        if wanted != self._reading and not self._transport.is_closing():
            self._reading = wanted
            if wanted:
                self._transport.resume_reading()
            else:
                self._transport.pause_reading()

    def time_out(self) -> None:
        """The deadline has passed."""
        if self._began and not self._clogged:
            self.refuse(408, "RequestTimeout", "The request was sent too slowly.")
        elif self._clogged:
            self._transport.abort()
        else:
            self._transport.close()

    def refuse(self, status: int, code: str, message: str) -> None:
        """Say why, and end the connection; answers before it are still awaited by nobody."""
        self._closing = True
        response = self._site.refusal(status, code, message)
        head = response.head(self._site.date, keep_alive=False, length=len(response.body))
        if not self._transport.is_closing():
            self._transport.write(b"".join(self._out) + head + response.body)
            self._transport.close()

    def stop(self) -> None:
        """The server ends: close now if nothing is under way, else after the last answer."""
        if not self._exchanges and self._streaming is None:
            self._transport.close()
        elif self._streaming is not None:
            self._streaming.cancel()
