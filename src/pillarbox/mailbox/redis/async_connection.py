"""Connections for asyncio: what `connection` does for threads, with an await at each step.

A cancelled task tears off no call: it goes on by itself to its end, and what it was given then
is handed to `undo`. Only a receiver that is parked ends at once.
"""

from __future__ import annotations

import asyncio
from typing import Any

from redis import exceptions as e

from pillarbox.core.errors import MailboxError
from pillarbox.mailbox.redis.call import Call
from pillarbox.mailbox.redis.retry import Attempts
from pillarbox.mailbox.redis.round_trip import RoundTrip
from pillarbox.mailbox.redis.servers import Address, Servers
from pillarbox.mailbox.runner import AsyncConnection, run_async

_NUDGE_SECONDS = 0.001


class _Wire:
    """A connection, and where it leads."""

    __slots__ = ("address", "client_id", "connection")

    def __init__(self, connection: Any, address: Address) -> None:
        self.connection = connection
        self.address = address
        self.client_id: int | None = None

    async def ask(self, *command: Any) -> Any:
        await self.connection.send_command(*command, check_health=False)
        return await self.connection.read_response(disable_decoding=True)


class AsyncRedisConnection(AsyncConnection):
    """A pool of connections to some servers, for one event loop."""

    def __init__(self, servers: Servers, retry_seconds: float) -> None:
        self._servers = servers
        self._retry_seconds = retry_seconds
        self._idle: dict[Address, list[_Wire]] = {}
        self._asking = asyncio.Lock()
        self._parked: dict[_Wire, str] = {}
        self._orphans: set[asyncio.Task[Any]] = set()  # calls whose caller was cancelled
        self._closed = False

    async def do(self, request: Call) -> Any:
        if self._moved():
            self._idle = {}
        return await (self._call(request) if request.undo is None else self._sheltered(request))

    async def _sheltered(self, call: Call) -> Any:
        task = asyncio.ensure_future(self._call(call))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if call.block_seconds:
                task.cancel()
            orphan = asyncio.ensure_future(self._make_good(task, call))
            self._orphans.add(orphan)
            orphan.add_done_callback(self._orphans.discard)
            raise

    async def _make_good(self, task: asyncio.Future[Any], call: Call) -> None:
        assert call.undo is not None
        reply: Any = (await asyncio.gather(task, return_exceptions=True))[0]
        try:
            undo = call.undo(None if isinstance(reply, BaseException) else reply)
            await run_async(undo, self._call)
        except MailboxError:  # its lease will run out
            return

    async def wake(self, verbs: Any) -> None:
        """Wake every receiver that is parked on the queue of these verbs."""
        while True:
            parked = [wire for wire, where in list(self._parked.items()) if where == verbs.name]
            if not parked:
                return
            for wire in parked:
                if wire.client_id is not None:
                    await self._unblock(wire)
            await asyncio.sleep(_NUDGE_SECONDS)

    async def _unblock(self, parked: _Wire) -> None:
        try:
            wire = await self._take(parked.address)
            await wire.ask("CLIENT", "UNBLOCK", parked.client_id)
            await self._put_back(wire)
        except (e.RedisError, OSError):  # then the one that is parked has lost it too
            return

    async def close(self) -> None:
        """Keep no connection open; what comes later opens one for itself."""
        self._closed = True
        if self._orphans:
            await asyncio.gather(*self._orphans, return_exceptions=True)
        for wires in list(self._idle.values()):
            while wires:
                await wires.pop().connection.disconnect()

    async def _call(self, call: Call) -> Any:
        trip = RoundTrip(call)
        try:
            return await self._once(trip)
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
                await asyncio.sleep(pause)
            trip = RoundTrip(call, error)
            try:
                return await self._once(trip)
            except (e.RedisError, OSError) as again:
                error = again

    async def _once(self, trip: RoundTrip) -> Any:
        wire = await self._take(trip.asking or await self._address(trip.call.slot))
        try:
            go = self._park if trip.call.block_seconds else self._travel
            answer = await go(wire, trip)
        except e.ResponseError:  # the server's word: the connection is sound
            await self._put_back(wire)
            raise
        except BaseException:
            await wire.connection.disconnect(nowait=True)
            raise
        await self._put_back(wire)
        return answer

    async def _travel(self, wire: _Wire, trip: RoundTrip) -> Any:
        connection = wire.connection
        await connection.send_packed_command(trip.packed(), check_health=False)
        trip.sent = True
        longer = {"timeout": trip.patience} if trip.call.replicas else {}
        while trip.expects():
            try:
                trip.answered(await connection.read_response(disable_decoding=True, **longer))
            except e.NoScriptError:
                text = trip.spelled_out()
                await connection.send_packed_command(text, check_health=False)
            except e.ResponseError as error:
                trip.refused(error)
        return trip.answer()

    async def _park(self, wire: _Wire, trip: RoundTrip) -> Any:
        """Sleep until the server has an answer, unless the mailbox is closed meanwhile."""
        call = trip.call
        if wire.client_id is None:
            wire.client_id = int(await wire.ask("CLIENT", "ID"))
        self._parked[wire] = call.queue
        try:
            if call.stop is not None and call.stop():
                return None
            packed = trip.packed()
            await wire.connection.send_packed_command(packed, check_health=False)
            if trip.asking is not None:
                await wire.connection.read_response()
            return await wire.connection.read_response(disable_decoding=True, timeout=trip.patience)
        finally:
            del self._parked[wire]

    async def _take(self, address: Address) -> _Wire:
        try:
            return self._idle[address].pop()
        except (KeyError, IndexError):
            return _Wire(await self._connect(self._servers.options_for(address)), address)

    async def _put_back(self, wire: _Wire) -> None:
        if self._closed:
            await wire.connection.disconnect()
        else:
            self._idle.setdefault(wire.address, []).append(wire)

    async def _connect(self, options: dict[str, Any]) -> Any:
        connection = self._servers.connection_class(**options)
        await connection.connect()
        return connection

    async def _address(self, slot: int) -> Address:
        address = self._servers.address(slot)
        if address is not None:
            return address
        async with self._asking:
            return self._servers.address(slot) or await self._ask(slot)

    async def _ask(self, slot: int) -> Address:
        """Ask the seeds, one after the other, where a slot is."""
        servers = self._servers
        error: Exception = e.ConnectionError("no server knows where the queue is")
        for seed in list(servers.seeds):
            try:
                wire = _Wire(await self._connect(servers.options_for_seed(seed)), seed)
                try:
                    servers.learn(await wire.ask(*servers.question), seed)
                finally:
                    await wire.connection.disconnect()
            except (e.RedisError, OSError) as failed:
                error = failed
                continue
            address = servers.address(slot)
            if address is not None:
                return address
        raise e.ConnectionError(str(error)) from error
