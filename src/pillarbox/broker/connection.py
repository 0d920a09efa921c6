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

from pillarbox.broker import limits
from pillarbox.broker.buffers import Unfinished
from pillarbox.broker.http import Request, Response, StreamingResponse
from pillarbox.broker.http_parser import RequestParser
from pillarbox.logger import logger

if TYPE_CHECKING:
    from pillarbox.broker.http_server import HttpServer

NEVER: Final = float("inf")
_CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"

Callback = Callable[[], object]


class PendingResponse:
    """A request whose answer is not written yet."""

    __slots__ = ("future", "is_ready", "keep_alive", "only_head", "response")

    def __init__(self, keep_alive: bool, only_head: bool) -> None:
        self.keep_alive = keep_alive
        self.only_head = only_head
        self.response: Response | None = None
        self.is_ready = False  # whether it may be written, when those before it are
        self.future: asyncio.Future[Response] | None = None


class Connection(asyncio.Protocol):
    """A connection, from accept to close."""

    __slots__ = ("_backlog", "_clogged", "_closing", "_handle", "_held", "_lingers", "_out", "_parser", "_pending", "_reading", "_secure", "_server", "_streaming", "_transport", "_unflushed", "_unread", "_write", "deadline")  # fmt: skip  # noqa: E501

    def __init__(self, server: HttpServer) -> None:
        self._server = server
        self._handle = server.handle
        self._held = 0  # bytes of a request that is still arriving
        self._pending: deque[PendingResponse] = deque()
        self._backlog: deque[tuple[Request, bool]] = deque()  # requests that have not begun
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
        server, address = self._server, transport.get_extra_info("peername")
        peer = str(address[0]) if isinstance(address, tuple) else "local"
        self._secure = transport.get_extra_info("sslcontext") is not None
        self._parser = RequestParser(peer, self._secure, server.check, self._take, server.loop.time)
        if not self._secure:  # over TLS, uvloop pauses at such a limit and never resumes
            self._transport.set_write_buffer_limits(0)  # tell us of every byte that has to wait
        if not server.admit(self):
            self.refuse(503, "ServiceUnavailable", "Too many connections.", linger=False)
            return
        self.deadline = server.idle_until

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
        while self._pending:
            pending = self._pending.popleft()
            if pending.future is not None:
                pending.future.cancel()
            if pending.response is not None and pending.response.unsent is not None:
                unsent.append(pending.response.unsent)
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
        self._set_deadline()
        self.flush()
        self._read_on()

    def data_received(self, data: bytes) -> None:
        if self._unread:
            self._unread = []  # it goes on, so it has read what it waited for
        if self._closing:
            return
        parser = self._parser
        try:
            parser.feed(data)
        except limits.LimitError as error:
            self.refuse(*error.args)
            return
        if parser.began or self._held:
            self._check_arriving()
        if self._out or (self._pending and self._pending[0].is_ready):
            self._server.flush_soon(self)
        if self._pending or self._clogged or parser.began:
            self._set_deadline()
            self._read_on()

    def _check_arriving(self) -> None:
        """A request is here in part: count its memory, and ask for its key and its body."""
        parser = self._parser
        if parser.request is not None and not parser.checked:
            parser.checked = True
            self._check_key(parser.request)
        if parser.proceed:
            parser.proceed = False
            self._out.append(_CONTINUE)
        self._hold(parser.held_bytes)

    def _check_key(self, request: Request) -> None:
        """Refuse a request that shows no key, where keys are needed, before its body is read."""
        if self._pending or self._server.shows_key(request):
            return  # a client that waits for another answer has shown one
        self._lingers = True
        self._begin(request, False)  # the handler refuses it, in the form of its protocol
        self._closing = True
        self._drop()

    # -- answering ---------------------------------------------------------------------------

    def _take(self, request: Request, keep_alive: bool) -> None:
        """A request is here: have it answered, now or after those before it."""
        if self._backlog or self._clogged or len(self._pending) >= limits.PIPELINED_MAX:
            self._backlog.append((request, keep_alive))
        else:
            self._begin(request, keep_alive)

    def _is_full(self) -> bool:
        """Whether the client has to wait for answers, or to read them, before it gets more."""
        return self._clogged or len(self._pending) >= limits.PIPELINED_MAX

    def _begin(self, request: Request, keep_alive: bool) -> None:
        if self._closing:
            return
        self._server.requests += 1
        try:
            answer = self._handle(request)
        except Exception:  # noqa: BLE001 - a fault of ours must not end the server
            logger.exception("a request failed", path=request.path)
            answer = self._server.broken()
        only_head = request.method == "HEAD"
        if isinstance(answer, Response):
            at_once = answer.confirmation is None and not self._pending and not self._clogged
            if at_once and not isinstance(answer, StreamingResponse):
                self._put(answer, keep_alive, only_head)
                if len(answer.body) > limits.FLUSH_BYTES:
                    self.flush()
                return
        pending = PendingResponse(keep_alive, only_head)
        self._pending.append(pending)
        if isinstance(answer, Response):
            self._answer(pending, answer)
        else:
            self._await(pending, answer)

    def _await(self, pending: PendingResponse, answer: Awaitable[Response]) -> None:
        pending.future = asyncio.ensure_future(answer)

        def arrived(done: asyncio.Future[Response]) -> None:
            pending.future = None
            if done.cancelled():
                return
            error = done.exception()
            if error is not None:
                logger.error("a request failed", exc_info=error)
            response = done.result() if error is None else self._server.broken()
            if self._closing and pending not in self._pending:  # it has hung up
                if response.unsent is not None:
                    response.unsent()
                return
            self._answer(pending, response)
            self.flush()
            self._read_on()

        pending.future.add_done_callback(arrived)

    def _answer(self, pending: PendingResponse, response: Response) -> None:
        """Write it once all that it tells of is confirmed, and it is its turn."""
        pending.response = response
        confirmation = response.confirmation
        if confirmation is None or confirmation.is_done:
            self._confirm(pending)
        else:
            confirmation.add_done_callback(partial(self._confirmed, pending))

    def _confirm(self, pending: PendingResponse) -> None:
        """It may leave, or another answer if what it waited for has failed."""
        response = cast("Response", pending.response)
        error = response.confirmation.error if response.confirmation is not None else None
        if error is not None:
            if response.if_unconfirmed is not None:
                pending.response = response.if_unconfirmed(error)
            else:
                logger.error("a request could not be confirmed", error=str(error))
                pending.response = self._server.broken()
        pending.is_ready = True

    def _confirmed(self, pending: PendingResponse) -> None:
        self._confirm(pending)
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
        if self._pending:
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
            if self._streaming is None and (not self._pending or not self._pending[0].is_ready):
                self._end()
        elif not self._pending and not self._parser.began and not self._clogged:
            self.deadline = self._server.idle_until

    def _put_ready(self) -> None:
        while self._pending and self._pending[0].is_ready and not self._clogged:
            pending = self._pending.popleft()
            response = cast("Response", pending.response)
            if isinstance(response, StreamingResponse):
                self._streaming = self._server.loop.create_task(self._stream(response))
                return
            self._put(response, pending.keep_alive, pending.only_head)
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

    def _set_deadline(self) -> None:
        """Set the deadline for what the client has to do next."""
        if self._clogged or self._lingers:
            return
        if self._pending or self._streaming is not None:
            self.deadline = NEVER  # it waits for us
            return
        parser = self._parser
        if not parser.began:
            self.deadline = self._server.idle_until
        elif parser.request is not None:
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
        self._lingers = linger and not self._pending
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
        if not self._pending and self._streaming is None:
            self.flush()
            self._transport.close()
        elif self._streaming is not None:
            self._streaming.cancel()
