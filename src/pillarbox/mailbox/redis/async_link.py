"""Connections for asyncio: what `link` does for threads, with an await at each step.

A cancelled task tears off no call: it goes on by itself to its end, and what it was given then
is handed to `undo`. Only a receiver that is parked ends at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

from redis import exceptions as e

from pillarbox.core.errors import InvalidParameterError, MailboxError
from pillarbox.mailbox.redis.plan import Call, Plan
from pillarbox.mailbox.redis.retry import Attempts
from pillarbox.mailbox.redis.site import Address, Site
from pillarbox.mailbox.redis.trip import Trip

R = TypeVar("R")

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


class AsyncLink:
    """The way to the servers of one site, for one event loop."""

    def __init__(self, site: Site, retry_seconds: float) -> None:
        self._site = site
        self._retry_seconds = retry_seconds
        self._loop: asyncio.AbstractEventLoop | None = None
        self._idle: dict[Address, list[_Wire]] = {}
        self._asking = asyncio.Lock()
        self._parked: dict[_Wire, str] = {}
        self._orphans: set[asyncio.Task[Any]] = set()  # calls whose caller was cancelled
        self._closed = False

    async def run(self, plan: Plan[R], undo: Callable[[Any], Plan[Any]] | None = None) -> R:
        """What the verb answers. `undo` makes good what a cancelled caller never saw."""
        self._check_loop()
        try:
            call = next(plan)
            while True:
                try:
                    reply = await self._sheltered(call, undo)
                except MailboxError as error:
                    call = plan.throw(error)
                else:
                    call = plan.send(reply)
        except StopIteration as done:
            answer: R = done.value
            return answer

    async def _sheltered(self, call: Call, undo: Callable[[Any], Plan[Any]] | None) -> Any:
        if undo is None:
            return await self._call(call)
        task = asyncio.ensure_future(self._call(call))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if call.block_seconds:
                task.cancel()
            orphan = asyncio.ensure_future(self._make_good(task, undo))
            self._orphans.add(orphan)
            orphan.add_done_callback(self._orphans.discard)
            raise

    async def _make_good(self, task: asyncio.Future[Any], undo: Callable[[Any], Plan[Any]]) -> None:
        reply: Any = (await asyncio.gather(task, return_exceptions=True))[0]
        try:
            await self.run(undo(None if isinstance(reply, BaseException) else reply))
        except MailboxError:  # its lease will run out
            return

    async def unblock(self, queue: str) -> None:
        """Wake every receiver that is parked on this queue through this link."""
        while True:
            parked = [wire for wire, where in list(self._parked.items()) if where == queue]
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
        trip = Trip(call)
        try:
            return await self._once(trip)
        except (e.RedisError, OSError) as first:
            error: Exception = first
        attempts = Attempts(call, self._retry_seconds)
        while True:
            pause = attempts.after(error, trip.sent)
            if isinstance(error, e.MovedError):
                self._site.moved(call.slot, (error.host, error.port))
            elif attempts.lost:
                self._site.forget(call.slot)
            if pause:
                await asyncio.sleep(pause)
            trip = Trip(call, error)
            try:
                return await self._once(trip)
            except (e.RedisError, OSError) as again:
                error = again

    async def _once(self, trip: Trip) -> Any:
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

    async def _travel(self, wire: _Wire, trip: Trip) -> Any:
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

    async def _park(self, wire: _Wire, trip: Trip) -> Any:
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
            return _Wire(await self._connect(self._site.options_for(address)), address)

    async def _put_back(self, wire: _Wire) -> None:
        if self._closed:
            await wire.connection.disconnect()
        else:
            self._idle.setdefault(wire.address, []).append(wire)

    async def _connect(self, options: dict[str, Any]) -> Any:
        connection = self._site.connection_class(**options)
        await connection.connect()
        return connection

    async def _address(self, slot: int) -> Address:
        address = self._site.address(slot)
        if address is not None:
            return address
        async with self._asking:
            return self._site.address(slot) or await self._ask(slot)

    async def _ask(self, slot: int) -> Address:
        """Ask the seeds, one after the other, where a slot is."""
        site = self._site
        error: Exception = e.ConnectionError("no server knows where the queue is")
        for seed in list(site.seeds):
            try:
                wire = _Wire(await self._connect(site.options_for_seed(seed)), seed)
                try:
                    site.learn(await wire.ask(*site.question), seed)
                finally:
                    await wire.connection.disconnect()
            except (e.RedisError, OSError) as failed:
                error = failed
                continue
            address = site.address(slot)
            if address is not None:
                return address
        raise e.ConnectionError(str(error)) from error

    def _check_loop(self) -> None:
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            if self._loop is not None and not self._loop.is_closed():
                raise InvalidParameterError(
                    "event loop",
                    loop,
                    "the one that the mailbox is used on; open it once in each thread with a loop",
                )
            self._loop = loop
            self._idle = {}
