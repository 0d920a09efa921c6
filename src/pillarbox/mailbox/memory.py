"""Mailboxes in memory: for tests, for one process, and as the pattern for all others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import update_wrapper
from typing import TYPE_CHECKING, Any, Generic, TypeVar, Unpack, overload

from pillarbox.clock import Clock
from pillarbox.codec import QUICK_ERRORS
from pillarbox.core import limits
from pillarbox.core.queue import Lease, Record
from pillarbox.mailbox.async_local import AsyncLocalMailbox
from pillarbox.mailbox.local import LocalMailbox, LocalOptions, check_options, open_desk
from pillarbox.mailbox.message import Message
from pillarbox.mailbox.protocol import ReceiveOptions, SendOptions
from pillarbox.mailbox.store import Store

T = TypeVar("T")

_VISIBILITY_NS = limits.VISIBILITY_SECONDS_DEFAULT * limits.SECOND_NS
_WAIT_MAX = limits.WAIT_SECONDS_MAX


class MemoryOptions(LocalOptions, total=False):
    """How a mailbox in memory may be opened."""

    store: Store | None
    clock: Clock | None


_OPTIONS = tuple(MemoryOptions.__annotations__)


class MemoryMessage(Message[T], Generic[T], frozen=True, eq=False, gc=False):
    """A message from memory: the quick way to acknowledge it."""

    def acknowledge(self, strict: bool = False) -> bool:
        """The work is done: delete the message."""
        lease: Lease = self._delivery
        acquire, release, clock, queue = self._mailbox._settling
        acquire()
        try:
            if lease.deadline > clock() and not queue.groups:
                line = queue.lines.get(lease.timeout)
                if line is not None:
                    del line[lease.record.key]
                    lease.deadline = 0
                    return True
        finally:
            release()
        return super().acknowledge(strict)


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
        acquire: Callable[[], object] = store.lock.acquire
        self._tools = acquire, store.lock.release, store.clock.now, desk.queue, desk, store
        self._settling = store.lock.acquire, store.lock.release, store.clock.now, desk.queue

    # The hot path: what `LocalMailbox`, `decide` and `apply` do for one plain message, in one
    # frame a verb (tests/unit/test_hot_path.py holds them to it). Plain means no option, no
    # group, no policy. What is called is a local name first: CPython calls those much faster.

    def _quick_send(self, body: T, **options: Unpack[SendOptions]) -> str:
        acquire, release, clock, queue, desk, store = self._tools
        if options or not desk.plain:
            return super().send(body, **options)
        try:
            data = self._pack(body)
        except QUICK_ERRORS:
            data = self._encode(body)
        if len(data) > self._max_body_bytes:
            limits.body_bytes(data, self._max_body_bytes)
        acquire()
        try:
            now = clock()
            if now >= queue.wake_at:
                desk.settle(now)
            key = now >> 1
            if key <= store.last_key:
                key = store.last_key + 1
            store.last_key = key
            lane = queue.lanes[0]
            if not lane:
                queue.mask |= 1
            lane.append(Record(key, data))
            if desk.waiters:
                desk.serve(now)
        finally:
            release()
        return store.prefix + str(key)

    def _quick_receive(self, **options: Unpack[ReceiveOptions]) -> Sequence[Message[T]]:
        count, timeout, wait = 1, _VISIBILITY_NS, 0
        if options:
            seconds: Any = options.get("wait_time_seconds")
            if len(options) == 1 and seconds.__class__ is int and 0 <= seconds <= _WAIT_MAX:
                wait = seconds * limits.SECOND_NS
            else:
                count, timeout, wait = self._receive_options(**options)
        acquire, release, clock, queue, desk, _ = self._tools
        if count == 1 and desk.plain:
            acquire()
            try:
                now = clock()
                if now >= queue.wake_at:
                    desk.settle(now)
                lane = queue.lanes[0]
                line = queue.lines.get(timeout)
                lease = None
                if queue.mask == 1 and line is not None and not queue.groups:
                    record: Record = lane.popleft()  # type: ignore[assignment]
                    if not lane:
                        queue.mask = 0
                    deadline = now + timeout
                    number = record.deliveries + 1
                    lease = Lease(record, number, now, deadline, timeout, record.extra)
                    line[record.key] = lease
                    if deadline < queue.wake_at:
                        queue.wake_at = deadline
            finally:
                release()
            if lease is not None:
                try:
                    body = self._unpack(record.body)  # type: ignore[possibly-undefined]
                    return [MemoryMessage(body, number, lease, self)]  # type: ignore[possibly-undefined]
                except QUICK_ERRORS:
                    self._open([lease], Message, self)
        self._refuse_if_closed()
        return self._receive(count, timeout, wait)

    def close(self) -> None:
        """Wake every parked receive; nothing can be sent or received through it any more."""
        super().close()
        self._tools = self._refuse, *self._tools[1:]  # an open mailbox need not ask

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
