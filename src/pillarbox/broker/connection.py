"""One client's connection: bytes to requests, answers to bytes, in the order of the requests.

Requests of one connection are started as they arrive and answered in order, so a client may
pipeline. Everything a client sends has a limit and a deadline; whoever breaks one is told why
with a 4xx, if it still listens, and the connection ends. Nothing here knows of queues.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final, cast

import httptools

from pillarbox.broker import limits
from pillarbox.broker.buffers import Unfinished
from pillarbox.broker.exchange import Exchange
from pillarbox.broker.http import Request, Response, StreamingResponse
from pillarbox.broker.parsing import END, Head, Parser
from pillarbox.logger import logger

if TYPE_CHECKING:
    from pillarbox.broker.http_server import HttpServer

NEVER: Final = float("inf")
_CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"

Callback = Callable[[], object]


class Connection(asyncio.Protocol):
    """A connection, from accept to close."""

    __slots__ = ("_backlog", "_clogged", "_closing", "_exchanges", "_handle", "_heads", "_held", "_lingers", "_out", "_parser", "_peer", "_reading", "_secure", "_server", "_streaming", "_transport", "_unflushed", "_unread", "_write", "deadline")  # fmt: skip  # noqa: E501

    def __init__(self, server: HttpServer) -> None:
        self._server = server
        self._handle = server.handle
        self._heads = server.heads
        self._parser = Parser(server.heads, server.check, self._take, server.loop.time)
        self._held = 0  # bytes of a request that is still arriving
        self._exchanges: deque[Exchange] = deque()
        self._backlog: deque[tuple[Head, bytes, bool]] = deque()  # requests that have not begun
        self._out: list[bytes] = []
        self._unflushed: list[Callback] = []  # of answers that are not out of this process yet
        self._unread: list[Callback] = []  # of answers that are, and no word since
        self._clogged = False  # the client does not read as fast as we write
        self._reading = True
        self._closing = False
        self._lingers = False  # it may still be sending when we have nothing more to say
        self._streaming: asyncio.Task[None] | None = None
        self.deadline = NEVER

    # -- what the transport says -------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._write = self._transport.write
        peer = transport.get_extra_info("peername")
        self._peer = str(peer[0]) if isinstance(peer, tuple) else "local"
        self._secure = transport.get_extra_info("sslcontext") is not None
        if not self._secure:  # over TLS, uvloop pauses at such a limit and never resumes
            self._transport.set_write_buffer_limits(0)  # tell us of every byte that has to wait
        if not self._server.admit(self):
            self.refuse(503, "ServiceUnavailable", "Too many connections.", linger=False)
            return
        self.deadline = self._server.idle_until

    def connection_lost(self, exc: Exception | None) -> None:
        """Whatever the client did not get goes back where it came from.

        A connection that was reset had bytes that nobody read: the last answer was among them.
        """
        self._server.forget(self)
        self._closing = True
        self._backlog.clear()
        self._hold(0)
        self._parser.close()
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
        self.deadline = self._server.loop.time() + limits.WRITE_SECONDS_MAX
        self._read_on()

    def resume_writing(self) -> None:
        self._clogged = False
        self._flushed()
        self._rest()
        self.flush()
        self._read_on()

    def data_received(self, data: bytes) -> None:
        if self._unread:
            self._unread = []  # it goes on, so it has read what it waited for
        end = data.find(END) + 4
        head = self._heads.get(data[:end])
        if head is None or len(data) - end != head.length or self._parser.began or self._closing:
            self._parse(data)
            return
        # One whole request, and its head is known: so it goes mostly.
        self._take(head, data[end:], True)
        if self._out or (self._exchanges and self._exchanges[0].ready):  # a stream is ready at once
            self._server.flush_soon(self)
        if self._exchanges or self._clogged:
            self._rest()
            self._read_on()

    def _parse(self, data: bytes) -> None:
        if self._closing:
            return
        parser = self._parser
        try:
            parser.feed(data)
        except httptools.HttpParserUpgrade:
            self._closing = True  # the request was answered as if nothing had been offered
        except httptools.HttpParserError as error:
            self.refuse(400, "MalformedHttpRequest", f"Bad HTTP request: {error}.")
            return
        except limits.LimitError as error:
            self.refuse(*error.args)
            return
        if parser.in_body and not parser.checked:
            self._check_key()
        if parser.proceed:
            parser.proceed = False
            self._out.append(_CONTINUE)
        self._hold(parser.held_bytes)
        self.flush()
        if parser.began or self._exchanges or self._clogged:
            self._rest()
            self._read_on()

    def _check_key(self) -> None:
        """Refuse a request that shows no key, where keys are needed, before its body is read."""
        self._parser.checked = True
        head = self._parser.head()
        request = Request(*head[:4], b"", self._peer, self._secure)
        if self._exchanges or self._server.shows_key(request):
            return  # a client that waits for another answer has shown one
        self._lingers = True
        self._begin(head, b"", False)  # the handler refuses it, in the form of its protocol
        self._closing = True
        self._drop()

    # -- answering ---------------------------------------------------------------------------

    def _take(self, head: Head, body: bytes, keep_alive: bool) -> None:
        """A request is here: have it answered, now or after those before it."""
        if self._is_full() or self._backlog:
            self._backlog.append((head, body, keep_alive))
        else:
            self._begin(head, body, keep_alive)

    def _is_full(self) -> bool:
        """Whether the client has to wait for answers, or to read them, before it gets more."""
        return self._clogged or len(self._exchanges) >= limits.PIPELINED_MAX

    def _begin(self, head: Head, body: bytes, keep_alive: bool) -> None:
        if self._closing:
            return
        self._server.requests += 1
        method, path, query, headers, _ = head
        request = Request(method, path, query, headers, body, self._peer, self._secure)
        try:
            answer = self._handle(request)
        except Exception:  # noqa: BLE001 - a fault of ours must not end the server
            logger.exception("a request failed", path=request.path)
            answer = self._server.broken()
        only_head = method == "HEAD"
        if isinstance(answer, Response):
            at_once = answer.after is None and not self._exchanges and not self._clogged
            if at_once and not isinstance(answer, StreamingResponse):
                self._put(answer, keep_alive, only_head)
                if len(answer.body) > limits.FLUSH_BYTES:
                    self.flush()
                return
            exchange = Exchange(keep_alive, only_head)
            self._exchanges.append(exchange)
            self._answer(exchange, answer)
        else:
            exchange = Exchange(keep_alive, only_head)
            self._exchanges.append(exchange)
            self._await(exchange, answer)

    def _await(self, exchange: Exchange, answer: Awaitable[Response]) -> None:
        future = exchange.pending = asyncio.ensure_future(answer)

        def arrived(done: asyncio.Future[Response]) -> None:
            exchange.pending = None
            if done.cancelled():
                return
            error = done.exception()
            if error is not None:
                logger.error("a request failed", exc_info=error)
            response = done.result() if error is None else self._server.broken()
            if self._closing and exchange not in self._exchanges:  # it has hung up
                if response.unsent is not None:
                    response.unsent()
                return
            self._answer(exchange, response)
            self.flush()
            self._read_on()

        future.add_done_callback(arrived)

    def _answer(self, exchange: Exchange, response: Response) -> None:
        """Write it once what it waits for is confirmed, and it is its turn."""
        exchange.response = response
        gate = response.after
        if gate is None or gate.is_open:
            exchange.confirm(self._server.broken)
        else:
            gate.hold(partial(self._passed, exchange))

    def _passed(self, exchange: Exchange) -> None:
        """The gate that it waited at is open."""
        exchange.confirm(self._server.broken)
        self.flush()
        if not self._reading:
            self._read_on()

    def _put(self, response: Response, keep_alive: bool, only_head: bool) -> None:
        body = response.body
        server = self._server
        if server.stopping:
            keep_alive = False
        head = response.head(server.date, keep_alive, len(body))
        self._out.append(head if only_head else head + body)
        if response.unsent is not None:
            self._unflushed.append(response.unsent)
        if not keep_alive:
            self._closing = True

    def flush(self) -> None:
        """Write all answers whose turn it is."""
        exchanges = self._exchanges
        if exchanges:
            self._put_ready()
        out = self._out
        if out:
            data = out[0] if len(out) == 1 else b"".join(out)
            out.clear()
            if self._transport.is_closing():
                self._give_back()
                return
            self._write(data)
            if self._unflushed and not self._clogged:
                self._flushed()
        if self._closing:
            if self._streaming is None and (not exchanges or not exchanges[0].ready):
                self._end()
        elif not exchanges and not self._parser.began and not self._clogged:
            self.deadline = self._server.idle_until

    def _put_ready(self) -> None:
        exchanges = self._exchanges
        while exchanges and exchanges[0].ready and not self._clogged:
            exchange = exchanges.popleft()
            response = cast("Response", exchange.response)
            if isinstance(response, StreamingResponse):
                self._streaming = self._server.loop.create_task(self._stream(response))
                return
            self._put(response, exchange.keep_alive, exchange.only_head)
            if self._closing:
                return

    def _give_back(self) -> None:
        unsent, self._unflushed = self._unflushed, []
        for give_back in unsent:
            give_back()

    async def _stream(self, response: StreamingResponse) -> None:
        self._closing = True  # nothing follows a stream
        self.deadline = NEVER
        self._write(response.head(self._server.date, False, None))
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
        if self._clogged or self._lingers:
            return
        if self._exchanges or self._streaming is not None:
            self.deadline = NEVER  # it waits for us
            return
        parser = self._parser
        if not parser.began:
            self.deadline = self._server.idle_until
        elif parser.in_body:
            grace = limits.BODY_SECONDS_GRACE + parser.body_bytes / limits.BODY_RATE_MIN
            stalled = self._server.loop.time() + limits.BODY_STALL_SECONDS_MAX
            self.deadline = min(parser.began + grace, stalled)
        else:
            self.deadline = parser.began + limits.HEAD_SECONDS_MAX

    def _read_on(self) -> None:
        """Start waiting requests, and read more, while the client reads its answers."""
        while self._backlog and not self._is_full():
            self._begin(*self._backlog.popleft())
            self.flush()
        wanted = not self._is_full()
        if wanted != self._reading and not self._transport.is_closing():
            self._reading = wanted
            if wanted:
                self._transport.resume_reading()
            else:
                self._transport.pause_reading()

    def time_out(self) -> None:
        """The deadline has passed."""
        if self._parser.began and not self._clogged:
            self.refuse(408, "RequestTimeout", "The request was sent too slowly.", linger=False)
        elif self._clogged:
            self._transport.abort()
        else:
            self._transport.close()

    def refuse(self, status: int, code: str, message: str, *, linger: bool = True) -> None:
        """Say why, and end the connection; answers before it are still awaited by nobody."""
        self._drop()
        if self._lingers:  # it was told why before
            self._transport.abort()
            return
        self.flush()
        self._closing = True
        self._lingers = linger and not self._exchanges
        response = self._server.refusal(status, code, message)
        head = response.head(self._server.date, False, len(response.body))
        if not self._transport.is_closing():
            self._write(head + response.body)
            self._end()

    def _end(self) -> None:
        """Close, or else let a client that still sends finish: a reset would lose its answer."""
        if not self._lingers:
            self._transport.close()
            return
        if self._transport.can_write_eof():
            self._transport.write_eof()
        self.deadline = self._server.loop.time() + limits.LINGER_SECONDS_MAX
        if self._secure:
            self._hold(limits.TLS_BUFFER_BYTES)  # until it is closed

    def _hold(self, count: int) -> None:
        """Account for the memory of a request that is still arriving."""
        if count or self._held:
            if self._secure:
                count += min(count, limits.TLS_BUFFER_BYTES)
            self._held = count
            request = Unfinished(count, self._parser.began, self._parser.length)
            self._server.buffers.hold(self, request)

    def _drop(self) -> None:
        """Free what has arrived of requests that nobody will answer."""
        self._backlog.clear()
        self._parser.drop()
        self._hold(0)

    def stop(self) -> None:
        """The server ends: close now if nothing is under way, else after the last answer."""
        if not self._exchanges and self._streaming is None:
            self.flush()
            self._transport.close()
        elif self._streaming is not None:
            self._streaming.cancel()
