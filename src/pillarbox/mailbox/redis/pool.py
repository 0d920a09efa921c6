"""A pool of connections to Redis servers: one round trip per call, retried if it fails.

redis-py's sync and async connections have the same methods. Here each result is yielded, and
`run_blocking` or `run_awaiting` (see `runner`) runs code that is written once. The pool knows which
connection a parked receiver blocks on, so that it can be woken.
"""

from __future__ import annotations

import os
from threading import get_ident
from typing import Any

from msgspec import Struct
from redis import exceptions as e

from pillarbox.mailbox.redis.call import Call
from pillarbox.mailbox.redis.errors import RedisAttempts
from pillarbox.mailbox.redis.servers import Address, Servers
from pillarbox.mailbox.runner import Verb

_WAKE_AGAIN_SECONDS = 0.001
_PATIENCE_SECONDS = 5  # timeout beyond the time that the server may block


class PooledConnection(Struct, eq=False):
    """A connection, and the server's address."""

    connection: Any
    address: Address
    client_id: int | None = None

    def ask(self, *command: Any) -> Verb[Any]:
        yield self.connection.send_command(*command, check_health=False)
        return (yield self.connection.read_response(disable_decoding=True))


class Pool:
    """The connections of one mailbox, and of those that share its connection."""

    _sleep: Any  # time.sleep or asyncio.sleep
    _find: Any  # queries the seeds for a slot's server; one caller at a time

    def __init__(self, servers: Servers, retry_seconds: float) -> None:
        self._servers = servers
        self._retry_seconds = retry_seconds
        self._idle: dict[Address, list[PooledConnection]] = {}
        self._pid = os.getpid()
        self._parked: dict[PooledConnection, tuple[str, int]] = {}  # queue and thread
        self._closed = False

    def _call(self, call: Call) -> Verb[Any]:
        attempts: RedisAttempts | None = None
        while True:
            call.sent = False
            try:
                return (yield from self._once(call))
            except (e.RedisError, OSError) as failed:
                error = failed
            attempts = attempts or RedisAttempts(call, self._retry_seconds)
            pause = attempts.after(error, call.sent)
            call.asking = None
            if isinstance(error, e.MovedError):
                self._servers.moved(call.slot, (error.host, error.port))
            elif isinstance(error, e.AskError):
                call.asking = error.host, error.port
            elif attempts.lost:
                self._servers.forget(call.slot)
            if pause:
                yield self._sleep(pause)

    def _once(self, call: Call) -> Verb[Any]:
        address = call.asking or self._servers.address(call.slot) or (yield self._find(call.slot))
        wire = yield from self._take(address)
        try:
            send = self._park if call.block_seconds else self._exchange
            answer = yield from send(wire, call)
        except e.ResponseError:  # an error response: the connection is fine
            yield from self._put_back(wire)
            raise
        except BaseException:
            yield wire.connection.disconnect(True)  # nowait, for asyncio
            raise
        yield from self._put_back(wire)
        return answer

    def _exchange(self, wire: PooledConnection, call: Call) -> Verb[Any]:
        connection = wire.connection
        yield connection.send_packed_command(call.packed(), check_health=False)
        call.sent = True
        patience = call.replica_seconds + _PATIENCE_SECONDS
        longer = {"timeout": patience} if call.replicas else {}
        count = missing = 1 + (call.asking is not None) + (call.replicas > 0)
        answers: list[Any] = []
        refusal: Exception | None = None
        while len(answers) < missing:
            try:
                answers.append((yield connection.read_response(disable_decoding=True, **longer)))
            except e.NoScriptError:
                answers.append(None)
                missing += count
                yield connection.send_packed_command(call.packed(by_text=True), check_health=False)
            except e.ResponseError as error:
                refusal = refusal or error
                answers.append(None)
        if refusal is not None:
            raise refusal
        return call.confirmed(*answers[-2:]) if call.replicas else answers[-1]

    def _park(self, wire: PooledConnection, call: Call) -> Verb[Any]:
        """Block until the server responds, or until the mailbox is closed."""
        connection = wire.connection
        if wire.client_id is None:
            wire.client_id = int((yield from wire.ask("CLIENT", "ID")))
        self._parked[wire] = call.queue, get_ident()
        patience = call.block_seconds + _PATIENCE_SECONDS
        try:
            if call.stop is not None and call.stop():
                return None
            yield connection.send_packed_command(call.packed(), check_health=False)
            if call.asking is not None:
                yield connection.read_response()
            return (yield connection.read_response(disable_decoding=True, timeout=patience))
        finally:
            del self._parked[wire]

    def _take(self, address: Address) -> Verb[PooledConnection]:
        if self._pid != os.getpid():  # after a fork the connections belong to the parent
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
        try:
            yield connection.connect()
        except BaseException:  # cancelled: a half-open connection would keep uvloop from closing
            yield connection.disconnect(True)  # nowait, for asyncio
            raise
        return PooledConnection(connection, address)

    def _ask_seeds(self, slot: int) -> Verb[Address]:
        """Query the seeds, one after the other, for the server of a slot."""
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
        except (e.RedisError, OSError):  # then the parked receiver has lost its connection, too
            return

    def _close(self) -> Verb[None]:
        """Close all connections. A later call opens a new one."""
        self._closed = True
        for wires in list(self._idle.values()):
            while wires:
                yield wires.pop().connection.disconnect()
