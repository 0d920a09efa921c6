"""A pool of connections to Redis servers: one round trip for each call, tried again if it fails.

The calls of redis-py's connections have the same names for threads and for asyncio. Here each is
yielded, and `run_blocking` or `run_awaiting` (see `runner`) runs what is written once. Which
connection a parked receiver sleeps on is known, so that it can be woken.
"""

from __future__ import annotations

import os
from threading import get_ident
from typing import Any

from redis import exceptions as e

from pillarbox.mailbox.redis.call import Call
from pillarbox.mailbox.redis.retry import Attempts
from pillarbox.mailbox.redis.round_trip import RoundTrip
from pillarbox.mailbox.redis.servers import Address, Servers
from pillarbox.mailbox.runner import Verb

_WAKE_AGAIN_SECONDS = 0.001


class PooledConnection:
    """A connection, and where it leads."""

    __slots__ = ("address", "client_id", "connection")

    def __init__(self, connection: Any, address: Address) -> None:
        self.connection = connection
        self.address = address
        self.client_id: int | None = None

    def ask(self, *command: Any) -> Verb[Any]:
        yield self.connection.send_command(*command, check_health=False)
        return (yield self.connection.read_response(disable_decoding=True))


class Pool:
    """The connections of one mailbox, and of those that share them with it."""

    _sleep: Any  # of threads or of asyncio
    _find: Any  # asks the seeds where a slot is; one caller at a time

    def __init__(self, servers: Servers, retry_seconds: float) -> None:
        self._servers = servers
        self._retry_seconds = retry_seconds
        self._idle: dict[Address, list[PooledConnection]] = {}
        self._pid = os.getpid()
        self._parked: dict[PooledConnection, tuple[str, int]] = {}  # the queue, and the thread
        self._closed = False

    def _call(self, call: Call) -> Verb[Any]:
        trip = RoundTrip(call)
        try:
            return (yield from self._once(trip))
        except (e.RedisError, OSError) as first:
            error: Exception = first
        attempts = Attempts(call, self._retry_seconds)
        while True:
            pause = attempts.after(error, trip.sent)
            if isinstance(error, e.MovedError):
                self._servers.moved(call.slot, (error.host, error.port))
            elif attempts.lost:
                self._servers.forget(call.slot)
            if pause:
                yield self._sleep(pause)
            trip = RoundTrip(call, error)
            try:
                return (yield from self._once(trip))
            except (e.RedisError, OSError) as again:
                error = again

    def _once(self, trip: RoundTrip) -> Verb[Any]:
        slot = trip.call.slot
        address = trip.asking or self._servers.address(slot) or (yield self._find(slot))
        wire = yield from self._take(address)
        try:
            send = self._park if trip.call.block_seconds else self._exchange
            answer = yield from send(wire, trip)
        except e.ResponseError:  # the server's word: the connection is sound
            yield from self._put_back(wire)
            raise
        except BaseException:
            yield wire.connection.disconnect(True)  # asyncio: without waiting
            raise
        yield from self._put_back(wire)
        return answer

    def _exchange(self, wire: PooledConnection, trip: RoundTrip) -> Verb[Any]:
        connection = wire.connection
        yield connection.send_packed_command(trip.packed(), check_health=False)
        trip.sent = True
        longer = {"timeout": trip.patience} if trip.call.replicas else {}
        while trip.expects():
            try:
                trip.answered((yield connection.read_response(disable_decoding=True, **longer)))
            except e.NoScriptError:
                yield connection.send_packed_command(trip.spelled_out(), check_health=False)
            except e.ResponseError as error:
                trip.refused(error)
        return trip.answer()

    def _park(self, wire: PooledConnection, trip: RoundTrip) -> Verb[Any]:
        """Sleep until the server has an answer, unless the mailbox is closed meanwhile."""
        call, connection = trip.call, wire.connection
        if wire.client_id is None:
            wire.client_id = int((yield from wire.ask("CLIENT", "ID")))
        self._parked[wire] = call.queue, get_ident()
        try:
            if call.stop is not None and call.stop():
                return None
            yield connection.send_packed_command(trip.packed(), check_health=False)
            if trip.asking is not None:
                yield connection.read_response()
            return (yield connection.read_response(disable_decoding=True, timeout=trip.patience))
        finally:
            del self._parked[wire]

    def _take(self, address: Address) -> Verb[PooledConnection]:
        if self._pid != os.getpid():  # a fork: the connections are the parent's
            self._idle, self._parked, self._pid = {}, {}, os.getpid()
        try:
            return self._idle[address].pop()
        except (KeyError, IndexError):
            return (yield from self._connect(self._servers.options_for(address), address))

    def _put_back(self, wire: PooledConnection) -> Verb[None]:
        if self._closed:
            yield wire.connection.disconnect()
        else:
            self._idle.setdefault(wire.address, []).append(wire)

    def _connect(self, options: dict[str, Any], address: Address) -> Verb[PooledConnection]:
        connection = self._servers.connection_class(**options)
        yield connection.connect()
        return PooledConnection(connection, address)

    def _ask_seeds(self, slot: int) -> Verb[Address]:
        """Ask the seeds, one after the other, where a slot is."""
        servers = self._servers
        error: Exception = e.ConnectionError("no server knows where the queue is")
        for seed in list(servers.seeds):
            try:
                wire = yield from self._connect(servers.options_for_seed(seed), seed)
                try:
                    servers.learn((yield from wire.ask(*servers.question)), seed)
                finally:
                    yield wire.connection.disconnect()
            except (e.RedisError, OSError) as failed:
                error = failed
                continue
            address = servers.address(slot)
            if address is not None:
                return address
        raise e.ConnectionError(str(error)) from error

    def _parked_on(self, queue: str) -> list[PooledConnection]:
        return [wire for wire, (where, _) in list(self._parked.items()) if where == queue]

    def _wake(self, queue: str) -> Verb[None]:
        """Wake every receiver that is parked on a queue."""
        while parked := self._parked_on(queue):
            for wire in parked:
                if wire.client_id is not None:
                    yield from self._unblock(wire)
            yield self._sleep(_WAKE_AGAIN_SECONDS)

    def _unblock(self, parked: PooledConnection) -> Verb[None]:
        try:
            wire = yield from self._take(parked.address)
            yield from wire.ask("CLIENT", "UNBLOCK", parked.client_id)
            yield from self._put_back(wire)
        except (e.RedisError, OSError):  # then the one that is parked has lost it too
            return

    def _close(self) -> Verb[None]:
        """Keep no connection open; what comes later opens one for itself."""
        self._closed = True
        for wires in list(self._idle.values()):
            while wires:
                yield wires.pop().connection.disconnect()
