"""Connections for threads: makes one round trip for each call, and tries again.

A thread takes a connection for the time of a call, so calls of many threads never wait for
one another. Which connection a parked receiver sleeps on is known, so that it can be woken.
"""

from __future__ import annotations

import os
import threading
import time
from threading import get_ident
from typing import Any

from redis import exceptions as e

from pillarbox.mailbox.redis.call import Call
from pillarbox.mailbox.redis.retry import Attempts
from pillarbox.mailbox.redis.round_trip import RoundTrip
from pillarbox.mailbox.redis.servers import Address, Servers
from pillarbox.mailbox.runner import Connection
from pillarbox.mutex import reentrant_call

_NUDGE_SECONDS = 0.001


class _Wire:
    """A connection, and where it leads."""

    __slots__ = ("address", "client_id", "connection")

    def __init__(self, connection: Any, address: Address) -> None:
        self.connection = connection
        self.address = address
        self.client_id: int | None = None

    def ask(self, *command: Any) -> Any:
        self.connection.send_command(*command, check_health=False)
        return self.connection.read_response(disable_decoding=True)


class RedisConnection(Connection):
    """A pool of connections to some servers."""

    def __init__(self, servers: Servers, retry_seconds: float) -> None:
        self._servers = servers
        self._retry_seconds = retry_seconds
        self._idle: dict[Address, list[_Wire]] = {}
        self._pid = os.getpid()
        self._asking = threading.RLock()  # a signal handler may ask, too
        self._parked: dict[_Wire, tuple[str, int]] = {}  # and the queue, and the thread that waits
        self._closed = False

    def wake(self, verbs: Any) -> None:
        """Wake every receiver that is parked on the queue of these verbs."""
        while True:
            waits = list(self._parked.items())
            parked = [wire for wire, (where, _) in waits if where == verbs.name]
            if not parked:
                return
            if any(thread == get_ident() for _, (_, thread) in waits):
                raise reentrant_call()  # it can't leave before this handler returns
            for wire in parked:
                if wire.client_id is not None:
                    self._unblock(wire)
            time.sleep(_NUDGE_SECONDS)

    def _unblock(self, parked: _Wire) -> None:
        try:
            wire = self._take(parked.address)
            wire.ask("CLIENT", "UNBLOCK", parked.client_id)
            self._put_back(wire)
        except (e.RedisError, OSError):  # then the one that is parked has lost it too
            return

    def close(self) -> None:
        """Keep no connection open; what comes later opens one for itself."""
        self._closed = True
        for wires in list(self._idle.values()):
            while wires:
                wires.pop().connection.disconnect()

    def do(self, request: Call) -> Any:
        call = request
        trip = RoundTrip(call)
        try:
            return self._once(trip)
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
                time.sleep(pause)
            trip = RoundTrip(call, error)
            try:
                return self._once(trip)
            except (e.RedisError, OSError) as again:
                error = again

    def _once(self, trip: RoundTrip) -> Any:
        wire = self._take(trip.asking or self._address(trip.call.slot))
        try:
            answer = self._park(wire, trip) if trip.call.block_seconds else self._travel(wire, trip)
        except e.ResponseError:  # the server's word: the connection is sound
            self._put_back(wire)
            raise
        except BaseException:
            wire.connection.disconnect()
            raise
        self._put_back(wire)
        return answer

    def _travel(self, wire: _Wire, trip: RoundTrip) -> Any:
        connection = wire.connection
        connection.send_packed_command(trip.packed(), check_health=False)
        trip.sent = True
        longer = {"timeout": trip.patience} if trip.call.replicas else {}
        while trip.expects():
            try:
                trip.answered(connection.read_response(disable_decoding=True, **longer))
            except e.NoScriptError:
                connection.send_packed_command(trip.spelled_out(), check_health=False)
            except e.ResponseError as error:
                trip.refused(error)
        return trip.answer()

    def _park(self, wire: _Wire, trip: RoundTrip) -> Any:
        """Sleep until the server has an answer, unless the mailbox is closed meanwhile."""
        call = trip.call
        if wire.client_id is None:
            wire.client_id = int(wire.ask("CLIENT", "ID"))
        self._parked[wire] = call.queue, get_ident()
        try:
            if call.stop is not None and call.stop():
                return None
            wire.connection.send_packed_command(trip.packed(), check_health=False)
            if trip.asking is not None:
                wire.connection.read_response()
            return wire.connection.read_response(disable_decoding=True, timeout=trip.patience)
        finally:
            del self._parked[wire]

    def _take(self, address: Address) -> _Wire:
        if self._pid != os.getpid():  # a fork: the connections are the parent's
            self._idle, self._parked, self._pid = {}, {}, os.getpid()
        try:
            return self._idle[address].pop()
        except (KeyError, IndexError):
            return _Wire(self._connect(self._servers.options_for(address)), address)

    def _put_back(self, wire: _Wire) -> None:
        if self._closed:
            wire.connection.disconnect()
        else:
            self._idle.setdefault(wire.address, []).append(wire)

    def _connect(self, options: dict[str, Any]) -> Any:
        connection = self._servers.connection_class(**options)
        connection.connect()
        return connection

    def _address(self, slot: int) -> Address:
        address = self._servers.address(slot)
        if address is not None:
            return address
        with self._asking:
            return self._servers.address(slot) or self._ask(slot)

    def _ask(self, slot: int) -> Address:
        """Ask the seeds, one after the other, where a slot is."""
        servers = self._servers
        error: Exception = e.ConnectionError("no server knows where the queue is")
        for seed in list(servers.seeds):
            try:
                wire = _Wire(self._connect(servers.options_for_seed(seed)), seed)
                try:
                    servers.learn(wire.ask(*servers.question), seed)
                finally:
                    wire.connection.disconnect()
            except (e.RedisError, OSError) as failed:
                error = failed
                continue
            address = servers.address(slot)
            if address is not None:
                return address
        raise e.ConnectionError(str(error)) from error
