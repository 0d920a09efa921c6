"""BusProcessor: runs a handler on every message of a bus.

At most `concurrency` handlers run at once, one per recipient, and recipients take turns. A message
is leased while it is handled, then acknowledged; an exception affects only its message. Coroutine
handlers run on the event loop, plain functions each in a thread.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import Any, Literal

from msgspec import Struct

from pillarbox.bus.bus import MessageBus
from pillarbox.bus.envelope import Envelope, Letter, envelope
from pillarbox.bus.events import HandlerFailed
from pillarbox.core import limits
from pillarbox.core.errors import MailboxError
from pillarbox.core.queue import NEVER
from pillarbox.mailbox.durable_store import DurableStore
from pillarbox.mailbox.message import Message
from pillarbox.worker.job import Reject, Retry, Verdict
from pillarbox.worker.retry import RetryPolicy, describe

Handler = Callable[[Envelope], Awaitable[object] | object]

_CONCURRENCY_MAX = 10_000


class Processed(Struct, frozen=True):
    """The result of one run of a processor."""

    handled: int
    failed: int
    forced: int  # delayed messages delivered early by the stop
    left: int  # messages still delayed: kept on disk, or lost in memory


class BusProcessor:
    """Runs one handler for all recipients, or one per recipient if given a mapping.

    Examples:
        >>> bus = MessageBus("tea", "coffee")
        >>> processor = BusProcessor(bus, lambda message: print(message.to, message.payload))
        >>> _ = bus.send(to="tea", sender="me", payload="two cups")
        >>> _ = bus.send(to="coffee", sender="me", payload="one cup", delay_ms=60_000)
        >>> processor.stop()  # gracefully: handles messages sent before
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
        self._handler = handler
        self._concurrency = limits.whole("concurrency", concurrency, 1, _CONCURRENCY_MAX)
        self._retry = retry or RetryPolicy()
        self._stopping: Literal["no", "graceful", "forced"] = "no"
        # Recipients that may have work, in the order of their turns, and those that other threads
        # have added.
        self._ready: OrderedDict[str, None] = OrderedDict()
        self._notified: deque[str] = deque()
        self._running: dict[str, tuple[asyncio.Task[None], Message[Letter]]] = {}
        # A graceful stop handles only messages sent before it, each once, so that it ends.
        self._last_key: int | None = None
        self._returned: set[str] = set()
        self._abandoning = False
        self._error: BaseException | None = None  # an error of the store, which ends the run
        self._handled = self._failed = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._wakeup = asyncio.Event()

    def run(self) -> Processed:
        """Run handlers until `stop`, in this thread."""
        return asyncio.run(self.run_async())

    def stop(self, *, force: bool = False) -> None:
        """End the run, gracefully or by force. Thread-safe.

        A graceful stop waits for running handlers; a bus in memory also handles all messages sent
        before. A forced stop abandons handlers and releases their messages. Messages that are
        still delayed stay on disk; in memory they are lost, with a warning.
        """
        if self._stopping != "forced":
            self._stopping = "forced" if force else "graceful"
        self._wake()

    def _notify(self, name: str) -> None:
        self._notified.append(name)
        self._wake()

    def _wake(self) -> None:
        loop = self._loop
        if loop is not None:
            try:
                loop.call_soon_threadsafe(self._wakeup.set)
            except RuntimeError:  # the loop is closed
                return

    async def run_async(self) -> Processed:
        """Run handlers until `stop`, on this event loop."""
        self._wakeup = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._ready = OrderedDict.fromkeys(self.bus.recipients)
        self.bus._listeners.append(self._notify)
        forced = 0
        try:
            while self._stopping == "no":
                await self._step()
            if self._stopping == "graceful":
                forced = await self._finish()
        finally:
            self.bus._listeners.remove(self._notify)
            await self._abandon()
            self._loop = None
        if self._error is not None:
            raise self._error
        self.bus._report_delayed()
        left = self.bus.delayed_count()
        self.bus._publish()
        return Processed(self._handled, self._failed, forced, left)

    async def _step(self) -> None:
        """Deliver due messages, start handlers, then sleep until there is more to do."""
        self._wakeup.clear()
        self.bus.deliver_due_messages()
        self.bus._publish()
        self._start()
        cancel = None
        if self.bus._wake_at < NEVER and self._loop is not None:
            clock = self.bus._store.clock
            cancel = clock.call_at(self.bus._wake_at, self._wakeup.set, self._loop)
        await self._wakeup.wait()
        if cancel is not None:
            cancel()

    async def _finish(self) -> int:
        """Wait for running handlers; in memory, handle all earlier messages, delayed or not."""
        forced = 0
        if not self.bus.durable:
            forced = self.bus.force_deliver_all_delayed()
            self._last_key = self.bus._store.last_key
            self._ready.update(dict.fromkeys(self.bus.recipients))
            self._start()
        while self._running and self._stopping == "graceful":
            self._wakeup.clear()
            await self._wakeup.wait()
            self.bus._publish()
            if self._last_key is not None:
                self._start()
        if not self.bus.durable and self._stopping == "graceful":
            forced += self.bus.force_deliver_all_delayed()  # scheduled by handlers meanwhile
        return forced

    async def _abandon(self) -> None:
        """Cancel running handlers and release their messages."""
        self._abandoning = True
        abandoned = list(self._running.values())
        for task, _ in abandoned:
            task.cancel()
        await asyncio.gather(*(task for task, _ in abandoned), return_exceptions=True)
        for _, message in abandoned:
            with suppress(MailboxError):  # do not mask the error that ended the run
                await self.bus._store.confirmed(message.release)

    def _start(self) -> None:
        """Start handlers for the next recipients, up to the limit."""
        while self._notified:
            self._ready.setdefault(self._notified.popleft())
        while self._ready and len(self._running) < self._concurrency:
            name, _ = self._ready.popitem(last=False)
            handler = self._handler_of(name)
            if handler is None or name in self._running:  # queued again when it ends
                continue
            message = self.bus._lease(name, self._wanted)
            if message is None:
                continue
            task = asyncio.get_running_loop().create_task(self._work(name, handler, message))
            self._running[name] = task, message
            task.add_done_callback(lambda task, name=name: self._ended(name, task))  # type: ignore[misc]

    def _ended(self, name: str, task: asyncio.Task[None]) -> None:
        del self._running[name]
        self._ready.setdefault(name)
        error = None if task.cancelled() else task.exception()
        if error is not None and name in self.bus._recipients:  # else it was unregistered
            self._error = self._error or error
            self._stopping = "forced"
        self._wakeup.set()

    def _wanted(self, key: int) -> bool:
        if self._last_key is None:
            return True
        return key <= self._last_key and self.bus._store.message_id(key) not in self._returned

    def _handler_of(self, name: str) -> Handler | None:
        return self._handler.get(name) if isinstance(self._handler, Mapping) else self._handler

    async def _work(self, name: str, handler: Handler, message: Message[Letter]) -> None:
        if isinstance(self.bus._store, DurableStore):
            await self.bus._store.recorded()  # so that a delivery that crashes the process counts
        try:
            await _call(handler, envelope(message, name))
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - affects this message only
            if self._abandoning:
                return
            self._failed += 1
            await self._settle(name, message, error)
        else:
            self._handled += 1
            await self.bus._store.confirmed(message.acknowledge)

    async def _settle(self, name: str, message: Message[Letter], error: BaseException) -> None:
        """Retry, reject or release a message whose handler raised."""
        verdict, after = self._retry.verdict(error, message.delivery_count), 0.0
        verb: Callable[[], bool]
        if isinstance(verdict, Retry):
            after = verdict.after
            verb = partial(message.nack, visibility_timeout=after)
            outcome = f"retried after {after:g} s"
        elif isinstance(verdict, Reject):
            verb, outcome = partial(message.reject, verdict.reason), "rejected"
        else:
            verb, outcome = message.release, "released"
        if self._stopping != "no":
            self._returned.add(message.id)
        due = self.bus._store.clock.now() + round(after * limits.SECOND_NS) if after else 0
        await self.bus._store.confirmed(verb)
        self.bus._changed(name, due)
        why = str(error) if isinstance(error, Verdict) else describe(error)
        self.bus._events.append(
            HandlerFailed(message.id, name, message.delivery_count, why, outcome)
        )


async def _call(handler: Handler, message: Envelope) -> None:
    """Run a handler on the event loop or in a thread."""
    if inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(
        getattr(handler, "__call__", None)  # noqa: B004 - an object with an async __call__
    ):
        await handler(message)  # type: ignore[misc]
        return
    result = await _in_thread(handler, message)
    if inspect.isawaitable(result):
        await result


async def _in_thread(handler: Handler, message: Envelope) -> Any:
    """Run a function in a daemon thread: a forced stop must not wait for it, as a pool would."""
    done: Future[Any] = Future()
    done.set_running_or_notify_cancel()  # it can't be cancelled, only abandoned

    def work() -> None:
        try:
            done.set_result(handler(message))
        except BaseException as error:  # noqa: BLE001 - raised where the handler is awaited
            if isinstance(error, StopIteration) or not isinstance(error, Exception):
                error = RuntimeError(f"the handler ended with {describe(error)}")
            done.set_exception(error)

    threading.Thread(target=work, name=f"pillarbox-bus-{message.to}", daemon=True).start()
    return await asyncio.wrap_future(done)
