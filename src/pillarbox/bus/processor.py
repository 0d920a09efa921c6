"""BusProcessor: runs a handler on every message of a bus.

What is due is delivered first. At most `concurrency` handlers run at once, one at a time for each
recipient, and recipients take turns. A message is held while it is handled and acknowledged when
that is done; what a handler raises concerns that message alone. One event loop drives it all:
coroutine handlers run on it, plain ones each in a thread.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any, Literal

from msgspec import Struct

from pillarbox.bus.bus import MessageBus
from pillarbox.bus.envelope import Envelope, Letter, envelope
from pillarbox.bus.events import HandlerFailed
from pillarbox.core import limits
from pillarbox.core.errors import MailboxError
from pillarbox.core.queue import NEVER
from pillarbox.mailbox.message import Message
from pillarbox.worker.job import Reject, Retry, Verdict
from pillarbox.worker.retry import RetryPolicy, describe

Handler = Callable[[Envelope], Awaitable[object] | object]

_CONCURRENCY_MAX = 10_000


class Processed(Struct, frozen=True):
    """What a processor did, from its start to its stop."""

    handled: int
    failed: int
    forced: int  # delayed messages that the stop delivered before their time
    left: int  # delayed messages that the stop left: kept on disk, or lost with the memory


class BusProcessor:
    """Runs `handler` on every message, or those of a mapping on their recipients' messages.

    Examples:
        >>> bus = MessageBus("tea", "coffee")
        >>> processor = BusProcessor(bus, lambda message: print(message.to, message.payload))
        >>> _ = bus.send(to="tea", sender="me", payload="two cups")
        >>> _ = bus.send(to="coffee", sender="me", payload="one cup", delay_ms=60_000)
        >>> processor.stop()  # gracefully: what was sent before is handled first
        >>> processor.run().handled
        tea two cups
        coffee one cup
        2
    """

    def __init__(
        self,
        bus: MessageBus,
        handler: Handler | Mapping[str, Handler],
        *,
        concurrency: int = 8,
        retry: RetryPolicy | None = None,
    ) -> None:
        self.bus = bus
        self._office = bus.office
        self._handler = handler
        self._concurrency = limits.whole("concurrency", concurrency, 1, _CONCURRENCY_MAX)
        self._retry = retry or RetryPolicy()
        self._stopping: Literal["no", "graceful", "forced"] = "no"
        # Who may have work, in the order of their turns; and the same, as other threads tell it.
        self._line: OrderedDict[str, None] = OrderedDict()
        self._called: deque[str] = deque()
        self._running: dict[str, tuple[asyncio.Task[None], Message[Letter]]] = {}
        # A stop handles what was sent before it, and nothing twice: or it might never end.
        self._last_key: int | None = None
        self._given_back: set[str] = set()
        self._abandoning = False
        self._broken: BaseException | None = None  # the store failed, and the run ends with that
        self._handled = self._failed = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._bell = asyncio.Event()

    # -- from any thread -------------------------------------------------------------------

    def run(self) -> Processed:
        """Work until `stop`, in this thread."""
        return asyncio.run(self.run_async())

    def stop(self, *, force: bool = False) -> None:
        """End the run: gracefully, or at once.

        Gracefully, running handlers end. A bus in memory also delivers and handles everything
        that was sent before; one on disk keeps it. By force, handlers are abandoned and their
        messages given back; what is delayed in memory is lost, with a warning that counts it.
        """
        if self._stopping != "forced":
            self._stopping = "forced" if force else "graceful"
        self._ring()

    def _call(self, name: str) -> None:
        self._called.append(name)
        self._ring()

    def _ring(self) -> None:
        loop = self._loop
        if loop is not None:
            try:
                loop.call_soon_threadsafe(self._bell.set)
            except RuntimeError:  # it is over, and the loop with it
                return

    # -- on the event loop -----------------------------------------------------------------

    async def run_async(self) -> Processed:
        """Work until `stop`, on this event loop."""
        self._bell = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._line = OrderedDict.fromkeys(self.bus.recipients)
        self._office.listeners.append(self._call)
        forced = 0
        try:
            while self._stopping == "no":
                await self._turn()
            if self._stopping == "graceful":
                forced = await self._finish()
        finally:
            self._office.listeners.remove(self._call)
            await self._abandon()
            self._loop = None
        if self._broken is not None:
            raise self._broken
        self._office.leave()
        left = self.bus.delayed_count()
        self._office.announce()
        return Processed(self._handled, self._failed, forced, left)

    async def _turn(self) -> None:
        """Deliver what is due, start what can start, then sleep until there is more to do."""
        self._bell.clear()
        self._office.deliver_due()
        self._office.announce()
        self._start()
        cancel = None
        if self._office.wake_at < NEVER and self._loop is not None:
            clock = self._office.store.clock
            cancel = clock.call_at(self._office.wake_at, self._bell.set, self._loop)
        await self._bell.wait()
        if cancel is not None:
            cancel()

    async def _finish(self) -> int:
        """Let running handlers end; in memory, handle all that was sent before, delayed or not."""
        forced = 0
        if not self._office.durable:
            forced = self._office.force()
            self._last_key = self._office.store.last_key
            self._line.update(dict.fromkeys(self.bus.recipients))
            self._start()
        while self._running and self._stopping == "graceful":
            self._bell.clear()
            await self._bell.wait()
            self._office.announce()
            if self._last_key is not None:
                self._start()
        if not self._office.durable and self._stopping == "graceful":
            forced += self._office.force()  # what handlers have scheduled meanwhile
        return forced

    async def _abandon(self) -> None:
        """Whatever still runs is given up: its message goes back, uncounted."""
        self._abandoning = True
        abandoned = list(self._running.values())
        for task, _ in abandoned:
            task.cancel()
        await asyncio.gather(*(task for task, _ in abandoned), return_exceptions=True)
        for _, message in abandoned:
            with suppress(MailboxError):  # what ended the run is worth more than this
                await self._office.store.confirmed(message.release)

    def _start(self) -> None:
        """Start a handler for each recipient whose turn it is, as many as may run."""
        while self._called:
            self._line.setdefault(self._called.popleft())
        while self._line and len(self._running) < self._concurrency:
            name, _ = self._line.popitem(last=False)
            handler = self._handler_of(name)
            if handler is None or name in self._running:  # it is in line again when that has ended
                continue
            message = self._office.lease(name, self._wanted)
            if message is None:
                continue
            task = asyncio.get_running_loop().create_task(self._work(name, handler, message))
            self._running[name] = task, message
            task.add_done_callback(lambda task, name=name: self._ended(name, task))  # type: ignore[misc]

    def _ended(self, name: str, task: asyncio.Task[None]) -> None:
        del self._running[name]
        self._line.setdefault(name)
        error = None if task.cancelled() else task.exception()
        if error is not None and name in self._office.recipients:  # else nobody is concerned
            self._broken = self._broken or error
            self._stopping = "forced"
        self._bell.set()

    def _wanted(self, key: int) -> bool:
        if self._last_key is None:
            return True
        return key <= self._last_key and self._office.store.message_id(key) not in self._given_back

    def _handler_of(self, name: str) -> Handler | None:
        return self._handler.get(name) if isinstance(self._handler, Mapping) else self._handler

    async def _work(self, name: str, handler: Handler, message: Message[Letter]) -> None:
        await self._office.recorded()
        try:
            await _call(handler, envelope(message, name))
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - its message's alone
            if self._abandoning:
                return
            self._failed += 1
            await self._settle(name, message, error)
        else:
            self._handled += 1
            await self._office.store.confirmed(message.acknowledge)

    async def _settle(self, name: str, message: Message[Letter], error: BaseException) -> None:
        """What becomes of a message whose handler raised."""
        verdict = self._retry.verdict(error, message.delivery_count)
        after = 0.0
        verb: Callable[[], bool] = message.release
        outcome = "released"
        if isinstance(verdict, Retry):
            after = verdict.after
            verb, outcome = (
                lambda: message.nack(visibility_timeout=after),
                f"again after {after:g} s",
            )
        elif isinstance(verdict, Reject):
            reason = verdict.reason
            verb, outcome = lambda: message.reject(reason), "rejected"
        if self._stopping != "no":
            self._given_back.add(message.id)
        due = self._office.store.clock.now() + round(after * limits.SECOND_NS) if after else 0
        await self._office.store.confirmed(verb)
        self._office.settled(name, due)
        why = str(error) if isinstance(error, Verdict) else describe(error)
        self._office.note(HandlerFailed(message.id, name, message.delivery_count, why, outcome))


async def _call(handler: Handler, message: Envelope) -> None:
    """Run a handler where it belongs."""
    if inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(
        getattr(handler, "__call__", None)  # noqa: B004 - an object whose call is a coroutine
    ):
        await handler(message)  # type: ignore[misc]
        return
    result = await _in_thread(handler, message)
    if inspect.isawaitable(result):
        await result


async def _in_thread(handler: Handler, message: Envelope) -> Any:
    """In a thread of its own, which a forced exit leaves behind: a pool would be waited for."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[tuple[Any, Exception | None]] = loop.create_future()

    def finish(result: Any, error: Exception | None) -> None:
        if not done.done():  # else nobody waits for it any more
            done.set_result((result, error))

    def work() -> None:
        result: Any = None
        failure: Exception | None = None
        try:
            result = handler(message)
        except Exception as error:  # noqa: BLE001 - it is raised where the handler is awaited
            failure = error
        except BaseException as error:  # noqa: BLE001 - it ends this thread, not the processor
            failure = RuntimeError(f"the handler ended with {describe(error)}")
        try:
            loop.call_soon_threadsafe(finish, result, failure)
        except RuntimeError:  # the processor is gone: its message was given back
            return

    threading.Thread(target=work, name=f"pillarbox-bus-{message.to}", daemon=True).start()
    result, error = await done
    if error is not None:
        raise error
    return result
