"""An HTTP connection: parses requests and writes responses in the order of the requests.

Requests start as they arrive, so clients can pipeline. Every input has a limit and a deadline; a
client that exceeds one gets a 4xx, if it is still reading, and is disconnected. Nothing here
knows about queues.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final, cast

from pillarbox.broker import limits
from pillarbox.broker.http import Request, Response, StreamingResponse
from pillarbox.broker.http_parser import RequestParser
from pillarbox.broker.pending_response import PendingResponse
from pillarbox.logger import logger

if TYPE_CHECKING:
    from pillarbox.broker.http_server import HttpServer

NEVER: Final = float("inf")
_CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"

Callback = Callable[[], object]


class Connection(asyncio.Protocol):
    """A client's connection, from accept to close."""

    __slots__ = ("_backlog", "_clogged", "_closing", "_handle", "_held", "_lingers", "_out", "_parser", "_pending", "_reading", "_secure", "_server", "_streaming", "_transport", "_unflushed", "_unread", "_unwritten", "_write", "deadline")  # fmt: skip  # noqa: E501

    def __init__(self, server: HttpServer) -> None:
        self._server = server
        self._handle = server.handle
        self._held = 0  # bytes of an incomplete request
        self._pending: deque[PendingResponse] = deque()
        self._backlog: deque[tuple[Request, bool]] = deque()  # requests that have not started
        self._out: list[bytes] = []
        self._unflushed: list[Callback] = []  # of responses not yet handed to the kernel
        self._unread: list[Callback] = []  # of responses that the client may not have read
        self._clogged = False  # the client reads more slowly than we write
        self._unwritten = 0  # bytes that waited for it when its deadline was set
        self._reading = True
        self._closing = False
        self._lingers = False  # the client may still be sending after our last response
        self._streaming: asyncio.Task[None] | None = None
        self.deadline = NEVER

    # -- callbacks of the transport ----------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._write = self._transport.write
        server, address = self._server, transport.get_extra_info("peername")
        peer = str(address[0]) if isinstance(address, tuple) else "local"
        self._secure = transport.get_extra_info("sslcontext") is not None
        self._parser = RequestParser(peer, self._secure, server.check, self._take, server.loop.time)
        if not self._secure:  # over TLS, uvloop pauses at such a limit and never resumes
            self._transport.set_write_buffer_limits(0)  # notify us of every byte that waits
        if not server.admit(self):
            self.refuse(503, "ServiceUnavailable", "Too many connections.", linger=False)
            return
        self.deadline = server.idle_until

    def connection_lost(self, exc: Exception | None) -> None:
        """Return messages that the client did not get to their queues.

        If the connection was reset, the client did not read the last response either.
        """
        self._server.forget(self)
        self._closing = True
        self._backlog.clear()
        self._hold(0)
        self._parser.close()
        if self._streaming is not None:
            self._streaming.cancel()
        if exc is not None:
            self._unflushed += self._unread
        while self._pending:
            pending = self._pending.popleft()
            if pending.future is not None:
                pending.future.cancel()
            if pending.response is not None and pending.response.unsent is not None:
                self._unflushed.append(pending.response.unsent)
        self._unread = []
        self._give_back()

    def pause_writing(self) -> None:
        self._clogged = True
        self._unwritten = self._transport.get_write_buffer_size()
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
            self._unread = []  # a client that sends again has read its responses
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
        """Handle an incomplete request: count its memory, check its key, ask for its body."""
        parser = self._parser
        if parser.request is not None and not parser.checked:
            parser.checked = True
            self._check_key(parser.request)
        if parser.proceed:
            parser.proceed = False
            self._out.append(_CONTINUE)
        self._hold(parser.held_bytes)

    def _check_key(self, request: Request) -> None:
        """If keys are required, refuse a request without one before reading its body."""
        if self._pending or self._server.shows_key(request):
            return  # a client that waits for another response has shown one
        self._lingers = True
        self._begin(request, False)  # the handler refuses it in the format of its protocol
        self._closing = True
        self._drop()

    # -- responses ---------------------------------------------------------------------------

    def _take(self, request: Request, keep_alive: bool) -> None:
        """Start a complete request, or queue it behind others."""
        if self._backlog or self._is_full():
            self._backlog.append((request, keep_alive))
        else:
            self._begin(request, keep_alive)

    def _is_full(self) -> bool:
        """Whether the client must wait for responses, or read them, before it gets more."""
        return self._clogged or len(self._pending) >= limits.PIPELINED_MAX

    def _begin(self, request: Request, keep_alive: bool) -> None:
        if self._closing:
            return
        self._server.requests += 1
        try:
            answer = self._handle(request)
        except Exception:  # noqa: BLE001 - a bug in a handler must not stop the server
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
            if self._closing and pending not in self._pending:  # the client disconnected
                if response.unsent is not None:
                    response.unsent()
                return
            self._answer(pending, response)
            self.flush()
            self._read_on()

        pending.future.add_done_callback(arrived)

    def _answer(self, pending: PendingResponse, response: Response) -> None:
        """Write the response once its writes are confirmed and it is next in order."""
        pending.response = response
        confirmation = response.confirmation
        if confirmation is None or confirmation.is_done:
            pending.confirm(self._server.broken)
        else:
            confirmation.add_done_callback(partial(self._confirmed, pending))

    def _confirmed(self, pending: PendingResponse) -> None:
        pending.confirm(self._server.broken)
        self.flush()
        if not self._reading:
            self._read_on()

    def _put(self, response: Response, keep_alive: bool, only_head: bool) -> None:
        body, server = response.body, self._server
        if server.stopping:
            keep_alive = False
        head = response.head(server.date, keep_alive, len(body))
        self._out.append(head if only_head else head + body)
        if response.unsent is not None:
            self._unflushed.append(response.unsent)
        if not keep_alive:
            self._closing = True

    def flush(self) -> None:
        """Write all responses that are ready, in order."""
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
            if isinstance(response, StreamingResponse) and not pending.only_head:
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
        self._write(response.head(self._server.date, False))
        try:
            async for chunk in response.chunks:
                if self._transport.is_closing() or self._clogged:
                    break  # too slow; the client can reconnect
                if chunk:
                    self._transport.write(b"%x\r\n%b\r\n" % (len(chunk), chunk))
            else:
                self._transport.write(b"0\r\n\r\n")
        finally:
            with suppress(AttributeError):
                await response.chunks.aclose()  # type: ignore[attr-defined]
            self._transport.close()

    def _flushed(self) -> None:
        """Everything written has been handed to the kernel."""
        self._unread, self._unflushed = self._unflushed, []

    # -- limits ------------------------------------------------------------------------------

    def _set_deadline(self) -> None:
        """Set the deadline for the client's next action."""
        if self._clogged or self._lingers:
            return
        if self._pending or self._streaming is not None:
            self.deadline = NEVER  # the client waits for us
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
        """Start queued requests, and resume or pause reading from the client."""
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
        """Disconnect a client that missed its deadline."""
        if self._clogged:
            read = self._unwritten - self._transport.get_write_buffer_size()
            if read >= limits.WRITE_SECONDS_MAX * limits.WRITE_RATE_MIN:
                self.pause_writing()  # wait for it once more
            else:
                self._transport.abort()
        elif self._parser.began:
            self.refuse(408, "RequestTimeout", "The request was sent too slowly.", linger=False)
        else:
            self._close_idle()

    def refuse(self, status: int, code: str, message: str, *, linger: bool = True) -> None:
        """Write an error response and close; responses in progress are dropped."""
        self._drop()
        if self._lingers:  # it has had its error response
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
        """Close; if the client still sends, only half-close: a reset would lose the response."""
        if not self._lingers:
            self._transport.close()
            return
        if self._transport.can_write_eof():
            self._transport.write_eof()
        self.deadline = self._server.loop.time() + limits.LINGER_SECONDS_MAX
        if self._secure:
            self._hold(limits.TLS_BUFFER_BYTES)  # until it is closed

    def _hold(self, count: int) -> None:
        """Account for the memory of an incomplete request."""
        if count or self._held:
            if self._secure:
                count += min(count, limits.TLS_BUFFER_BYTES)
            self._held = count
            self._server.buffers.hold(self, count, self._parser.began, self._parser.length)

    def _drop(self) -> None:
        """Free the data of requests that will not be answered."""
        self._backlog.clear()
        self._parser.drop()
        self._hold(0)

    def stop(self) -> None:
        """Close now if no response is pending, else after the last one."""
        if not self._pending and self._streaming is None:
            self.flush()
            self._close_idle()
        elif self._streaming is not None:
            self._streaming.cancel()

    def _close_idle(self) -> None:
        """Close the connection of a client that has had all of its responses.

        Over TLS, that ends with an error if the client, busy with its messages, does not answer
        the close_notify in time. It has read them all the same.
        """
        self._unread = []
        self._transport.close()
