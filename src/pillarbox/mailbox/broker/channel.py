"""Channels to a broker for threads: persistent sockets with one request at a time on each."""

from __future__ import annotations

import os
import select
import socket
import struct
import threading
import time
import weakref
from collections.abc import Sequence
from typing import Any

from pillarbox.mailbox.broker.address import Address
from pillarbox.mailbox.broker.answer import Answer, AnswerReader, results_of
from pillarbox.mailbox.broker.pool import (
    ANSWER_SECONDS_MAX,
    CONNECT_SECONDS_MAX,
    BaseChannel,
    ChannelPool,
    close_all,
)
from pillarbox.mailbox.broker.wire import Command
from pillarbox.mailbox.runner import Interrupted, Parked, run_sync

_TIME = struct.Struct("@ll")  # seconds and microseconds, as C's timeval
_RECEIVE_BYTES = 65_536  # a larger buffer would be mmapped for each response


class Channel(BaseChannel):
    """A channel: one connection at a time, and an identity that survives reconnects."""

    __slots__ = ("_poll", "_reader", "_seconds", "_socket")

    def __init__(self, address: Address) -> None:
        super().__init__(address)
        self._reader = AnswerReader()
        self._socket: socket.socket | None = None
        self._seconds = 0.0

    def exchange(self, head: bytes, body: bytes, seconds: float) -> Answer:
        """Send a request and return the response; raise OSError if that fails."""
        sock = self._living() or self._connect()
        if seconds != self._seconds:
            self._wait_at_most(seconds, sock)
        if self.hung_up:
            raise ConnectionAbortedError("the mailbox was closed")
        self.began = True
        sock.sendall(b"%b%d\r\n\r\n%b" % (head, len(body), body))
        receive, feed = sock.recv, self._reader.feed
        while True:
            try:
                data = receive(_RECEIVE_BYTES)
            except BlockingIOError:
                raise TimeoutError(f"no response in {seconds:g} seconds") from None
            if not data:
                raise ConnectionResetError("the broker closed the connection")
            answer = feed(data)
            if answer is not None:
                if answer.last:
                    self.close()
                return answer

    def _wait_at_most(self, seconds: float, sock: socket.socket) -> None:
        self._seconds = seconds
        if self.address.tls is not None:
            sock.settimeout(seconds)
            return
        # The kernel enforces the timeout: Python would poll before each call.
        sock.settimeout(None)
        whole = int(seconds)
        limit = _TIME.pack(whole, max(1_000, int((seconds - whole) * 1e6)))
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)

    def _living(self) -> socket.socket | None:
        """Return the connection unless the broker has closed it, to avoid a failed request."""
        if self._socket is not None and self._poll(0):
            self.close()
        return self._socket

    def _connect(self) -> socket.socket:
        address = self.address
        sock = socket.create_connection((address.host, address.port), CONNECT_SECONDS_MAX)
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if address.tls is not None:
                sock = address.tls.wrap_socket(sock, server_hostname=address.host)
        except BaseException:
            sock.close()
            raise
        watch = select.poll()
        watch.register(sock, select.POLLIN)
        self._poll = watch.poll
        self._socket, self._seconds = sock, CONNECT_SECONDS_MAX
        return sock

    def hang_up(self) -> None:
        """Half-close: end the long poll at the broker; a response under way still arrives."""
        self.hung_up = True  # set first: `_connect` checks it after connecting
        sock = self._socket
        if sock is not None:
            try:
                # On the TCP level, without close_notify.
                socket.socket.shutdown(sock, socket.SHUT_WR)
            except OSError:
                return  # already closed

    def close(self) -> None:
        sock, self._socket = self._socket, None
        self._reader.clear()
        if sock is not None:
            sock.close()


class Channels(ChannelPool[Channel]):
    """The channels to one broker, shared by every mailbox of this process that uses it."""

    def __init__(self, address: Address) -> None:
        super().__init__(address, Channel)
        weakref.finalize(self, close_all, self.idle)

    def ask(
        self,
        queue: str,
        commands: Sequence[Command],
        *,
        seconds: float = ANSWER_SECONDS_MAX,
        parked: Parked | None = None,
    ) -> list[Any]:
        """What the broker answers to these commands; raises for a single one that failed."""
        channel = self.take()

        def do(step: float | tuple[bytes, bytes]) -> Answer | None:
            if parked is not None and parked.over:
                raise Interrupted
            if isinstance(step, tuple):
                return channel.exchange(*step, seconds)
            if parked is None:
                time.sleep(step)
            else:
                parked.gate.acquire(timeout=step)
            return None

        if parked is not None:
            parked.use(channel.hang_up)
        try:
            answer = run_sync(do, self.exchange(channel, queue, commands))
        # Even if interrupted: a late response must not reach the next request.
        except BaseException:
            channel.close()
            raise
        if parked is not None:
            parked.use(None)
        self.put_back(channel)
        return results_of(answer, self.address)

    def enter(self) -> None:
        """Count a mailbox that uses these channels."""
        with _lock:
            self.users += 1

    def leave(self) -> None:
        with _lock:
            super().leave()


_lock = threading.RLock()  # a signal handler may open or close a mailbox
_known: weakref.WeakValueDictionary[Address, Channels] = weakref.WeakValueDictionary()


def channels_to(address: Address) -> Channels:
    """Return the channels to this broker, shared by all with the same address and key."""
    with _lock:
        channels = _known.get(address)
        if channels is None:
            channels = _known[address] = Channels(address)
        return channels


def _after_fork() -> None:
    """Drop the parent's connections in a forked child."""
    for channels in list(_known.values()):
        close_all(channels.idle)
        channels.login.heads.clear()  # they contain the parent's pid


os.register_at_fork(after_in_child=_after_fork)
