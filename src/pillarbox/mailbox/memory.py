"""Mailboxes in memory: for tests, for one process, and as the pattern for all others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import update_wrapper
from typing import TYPE_CHECKING, Any, Generic, TypeVar, Unpack, overload

from pillarbox.clock import Clock
from pillarbox.codec import QUICK_ERRORS
from pillarbox.core import limits
from pillarbox.core.hot import acknowledge, receive, send
from pillarbox.core.queue import Lease
from pillarbox.mailbox.async_local import AsyncLocalMailbox
from pillarbox.mailbox.local import LocalMailbox, LocalOptions, check_options, open_desk
from pillarbox.mailbox.message import Message
from pillarbox.mailbox.protocol import ReceiveOptions, SendOptions
from pillarbox.mailbox.store import Store

T = TypeVar("T")

_VISIBILITY_NS = limits.VISIBILITY_SECONDS_DEFAULT * limits.SECOND_NS


class MemoryOptions(LocalOptions, total=False):
    """How a mailbox in memory may be opened."""

    store: Store | None
    clock: Clock | None


_OPTIONS = tuple(MemoryOptions.__annotations__)


class InMemoryMailbox(LocalMailbox[T], Generic[T]):
    """A mailbox in this process's memory, safe from any thread.

    Examples:
        >>> orders = InMemoryMailbox("orders", str)
        >>> orders.send("two pillar boxes, red")  # doctest: +ELLIPSIS
        '...'
        >>> for message in orders.receive():
        ...     print(message.body, message.acknowledge())
        two pillar boxes, red True

    Mailboxes with the same `store` and name are the same queue; by default each has its own.
    """

    @overload
    def __init__(self, name: str, body_type: type[T], **options: Unpack[MemoryOptions]) -> None: ...
    @overload
    def __init__(
        self: InMemoryMailbox[T],
        name: str = "mailbox",
        body_type: Any = Any,
        **options: Unpack[MemoryOptions],
    ) -> None: ...
    def __init__(
        self, name: str = "mailbox", body_type: Any = Any, **options: Unpack[MemoryOptions]
    ) -> None:
        check_options(options, _OPTIONS)
        store = options.get("store") or Store(options.get("clock"))
        desk = open_desk(store, name, options)
        max_body_bytes = options.get("max_body_bytes", limits.BODY_BYTES_MAX)
        super().__init__(
            desk, body_type, open_reply=self._open_by_name, max_body_bytes=max_body_bytes
        )
        lock: Callable[[], object] = store.lock.acquire
        self._settling = lock, store.lock.release, store.clock.now, desk.queue
        self._tools = self._settling

    # The hot path: what the verbs of `LocalMailbox` do for one plain message, in one frame.
    # What is called is made a local name first: CPython calls those much faster.

    def _quick_send(self, body: T, **options: Unpack[SendOptions]) -> str:
        desk = self._desk
        if options or not desk.plain:
            return super().send(body, **options)
        pack = self._pack
        try:
            data = pack(body)
        except QUICK_ERRORS:
            data = self._encode(body)
        if len(data) > self._max_body_bytes:
            limits.body_bytes(data, self._max_body_bytes)
        store = self._store
        lock, unlock, clock, queue = self._tools
        lock()
        try:
            now = clock()
            if now >= queue.wake_at:
                desk.settle(now)
            key = now >> 1
            if key <= store.last_key:
                key = store.last_key + 1
            store.last_key = key
            send(queue, key, data)
            if desk.waiters:
                desk.serve(now)
        finally:
            unlock()
        return store.prefix + str(key)

    def _quick_receive(self, **options: Unpack[ReceiveOptions]) -> Sequence[Message[T]]:
        desk = self._desk
        if options:
            count, timeout, wait = self._receive_options(**options)
        else:
            count, timeout, wait = 1, _VISIBILITY_NS, 0
        if count == 1 and desk.plain:
            lock, unlock, clock, queue = self._tools
            lock()
            try:
                now = clock()
                if now >= queue.wake_at:
                    desk.settle(now)
                lease = receive(queue, timeout, now)
            finally:
                unlock()
            if lease is not None:
                unpack = self._unpack
                try:
                    return [Message(unpack(lease.record.body), lease.number, lease, self)]
                except QUICK_ERRORS:
                    self._open([lease], Message, self)
        self._refuse_if_closed()
        return self._receive(count, timeout, wait)

    def _acknowledge(self, lease: Lease) -> bool:
        lock, unlock, clock, queue = self._settling
        lock()
        try:
            if lease.deadline <= clock():
                return False
            if acknowledge(queue, lease):
                return True
        finally:
            unlock()
        return super()._acknowledge(lease)

    def close(self) -> None:
        """Wake every parked receive; nothing can be sent or received through it any more."""
        super().close()
        self._tools = self._refuse, *self._settling[1:]  # an open mailbox need not ask

    if not TYPE_CHECKING:  # options that come as one dict cost less than as many defaults
        send = update_wrapper(_quick_send, LocalMailbox.send)
        receive = update_wrapper(_quick_receive, LocalMailbox.receive)

    def _open_by_name(self, name: str, body_type: Any) -> LocalMailbox[Any]:
        """Where a reply goes: a name in this store, or `memory:name` for the shared one."""
        scheme, colon, rest = name.partition(":")
        store = shared_store if colon and scheme == "memory" else self._store
        return InMemoryMailbox(rest if colon else name, body_type, store=store)


class AsyncInMemoryMailbox(AsyncLocalMailbox[T], Generic[T]):
    """`InMemoryMailbox` for asyncio: the same arguments, and verbs to await."""

    @overload
    def __init__(self, name: str, body_type: type[T], **options: Unpack[MemoryOptions]) -> None: ...
    @overload
    def __init__(
        self: AsyncInMemoryMailbox[T],
        name: str = "mailbox",
        body_type: Any = Any,
        **options: Unpack[MemoryOptions],
    ) -> None: ...
    def __init__(
        self, name: str = "mailbox", body_type: Any = Any, **options: Unpack[MemoryOptions]
    ) -> None:
        super().__init__(InMemoryMailbox(name, body_type, **options))

    def __set_type__(self, alias: Any) -> None:
        """`AsyncInMemoryMailbox[Order]("orders")`: the type in brackets is the body's type."""
        self._sync.__set_type__(alias)

    __orig_class__ = property(fset=__set_type__)


shared_store = Store()  # what `memory:` URLs of this process name
