"""Mailboxes in memory: for tests, for one process, and as the pattern for all others."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import update_wrapper
from typing import TYPE_CHECKING, Any, Generic, TypeVar, Unpack, overload

from pillarbox.clock import Clock
from pillarbox.codec import QUICK_ERRORS
from pillarbox.core import limits
from pillarbox.core.events import Leased
from pillarbox.core.finish import finish
from pillarbox.core.leases import STALE_MAX
from pillarbox.core.queue import Lease, Record
from pillarbox.mailbox.async_local import AsyncLocalMailbox
from pillarbox.mailbox.local import LocalMailbox
from pillarbox.mailbox.local_options import LocalOptions, check_options, open_desk
from pillarbox.mailbox.message import AsyncMessage, Delivered, Message
from pillarbox.mailbox.message_ids import LOW_BITS, VARIANT
from pillarbox.mailbox.protocol import (
    BatchOptions,
    ReceiveOptions,
    SendOptions,
    SpecialForm,
)
from pillarbox.mailbox.store import Store

T = TypeVar("T")

_VISIBILITY_NS = limits.VISIBILITY_SECONDS_DEFAULT * limits.SECOND_NS
_WAIT_MAX = limits.WAIT_SECONDS_MAX


class MemoryOptions(LocalOptions, total=False):
    """How a mailbox in memory may be opened."""

    store: Store | None
    clock: Clock | None


_OPTIONS = tuple(MemoryOptions.__annotations__)


def _acknowledge(message: Delivered[Any], *, strict: bool = False) -> bool:
    """The work is done: delete the message."""
    lease: Lease = message._delivery
    token, give, clock, queue, lines, _ = message._mailbox._settling
    try:
        del token[0]
    except IndexError:
        return _settle(message, strict)
    held = token
    try:
        if lease.deadline > clock() and lease.timeout in lines and not queue.groups:
            line = lines[lease.timeout]
            lease.deadline = 0
            if line[0] is lease:
                line.popleft()
            else:
                queue.leases.stale += 1
                if queue.leases.stale > STALE_MAX:
                    queue.leases.tidy()
            return True
    finally:
        del held
        give(None)
    return _settle(message, strict)


def _settle(message: Delivered[Any], strict: bool) -> bool:
    """The general way to acknowledge."""
    answer: bool = message._mailbox._settling[-1]._acknowledge(message._delivery)
    return message._strictly(answer, "acknowledge") if strict else answer


class MemoryMessage(Message[T], Generic[T], frozen=True, eq=False, gc=False):
    """A message from memory: the quick way to acknowledge it."""

    acknowledge = _acknowledge


class AsyncMemoryMessage(AsyncMessage[T], Generic[T], frozen=True, eq=False, gc=False):
    """The same for asyncio."""

    async def acknowledge(self, *, strict: bool = False) -> bool:
        """The work is done: delete the message."""
        self._mailbox._here()
        return _acknowledge(self, strict=strict)


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

    _kind: Any = MemoryMessage

    @overload
    def __init__(
        self: InMemoryMailbox[Any],
        name: str,
        body_type: SpecialForm,
        **options: Unpack[MemoryOptions],
    ) -> None: ...
    @overload
    def __init__(self, name: str, body_type: type[T], **options: Unpack[MemoryOptions]) -> None: ...
    @overload
    def __init__(self, name: str = "mailbox", **options: Unpack[MemoryOptions]) -> None: ...
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
        self._equip()

    def _equip(self) -> None:
        """What the quick verbs need, in one tuple each: that is quicker than as attributes."""
        desk, store, queue = self._desk, self._store, self._desk.queue
        token, give, clock = store.lock.token, store.lock.give, store.clock.now
        lane, lines = queue.lanes[0], queue.leases.lines
        self._tools = token, give, clock, queue, desk, store, lane, lines
        self._settling = token, give, clock, queue, lines, self

    # The hot path: what `LocalMailbox`, `decide` and `apply` do for plain messages, in one frame a
    # verb. Plain means no option, no group, no policy, and no other thread at work (see `Turn`).
    # Each is held to the general verb by tests/unit/test_hot_path.py, and is that much faster:
    # send 5 x, receive 7 x, acknowledge 10 x, send_many 1.8 x, acknowledge_many 1.4 x (of 100).
    # What is called is a local name first: CPython calls those much faster. A signal handler may
    # raise after any call: what was begun then is finished.

    def _quick_send(self, body: T, **options: Unpack[SendOptions]) -> str:
        token, give, clock, queue, desk, store, lane, _ = self._tools
        if options or not desk.plain:
            return super().send(body, **options)
        try:
            data = self._pack(body)
        except QUICK_ERRORS:
            data = self._encode(body)
        if len(data) > self._max_body_bytes:
            limits.body_bytes(data, self._max_body_bytes)
        try:
            del token[0]
        except IndexError:
            return super().send(body)
        held = token
        try:
            now = clock()
            if now >= queue.wake_at:
                desk.settle(now)
            key = now >> 1  # `Store.new_keys` for one
            if key <= store.last_key:
                key = store.last_key + 1
            store.last_key = key
            lane.tail.append(Record(key, data))
            queue.mask |= 1
            if desk.waiters:
                desk.serve(now)
        except BaseException:
            if lane:
                queue.mask |= 1
            raise
        finally:
            del held
            give(None)
        return store.ids[key >> LOW_BITS] + hex(key | VARIANT)[6:]  # `Store.message_id`

    def _quick_send_many(self, bodies: Iterable[T], **options: Unpack[BatchOptions]) -> list[str]:
        token, give, clock, queue, desk, store, lane, _ = self._tools
        if options or not desk.plain:
            return super().send_many(bodies, **options)
        bodies = list(bodies)
        data = self._packed(bodies)
        try:
            del token[0]
        except IndexError:
            return super().send_many(bodies)
        held = token
        try:
            now = clock()
            if now >= queue.wake_at:
                desk.settle(now)
            keys = store.new_keys(now, len(data))
            lane.extend(map(Record, keys, data))
            if lane:
                queue.mask |= 1
            if desk.waiters:
                desk.serve(now)
        except BaseException:
            if lane:
                queue.mask |= 1
            raise
        finally:
            del held
            give(None)
        return store.message_ids(keys)

    def _quick_receive(  # noqa: PLR0915 - another frame would cost more than it tidies
        self, **options: Unpack[ReceiveOptions]
    ) -> Sequence[Message[T]]:
        count, timeout, wait = 1, _VISIBILITY_NS, 0
        if options:
            seconds: Any = options.get("wait_time_seconds")
            if len(options) == 1 and seconds.__class__ is int and 0 <= seconds <= _WAIT_MAX:
                wait = seconds * limits.SECOND_NS
            else:
                count, timeout, wait = self._receive_options(**options)
        token, give, clock, queue, desk, _, lane, lines = self._tools
        if count == 1 and desk.plain:
            try:
                del token[0]
            except IndexError:
                self._refuse_if_closed()
                return self._receive(1, timeout, wait)
            held = token
            lease = None
            try:
                now = clock()
                if now >= queue.wake_at:
                    desk.settle(now)
                mask, line = queue.mask, lines.get(timeout)
                if mask and line is not None and not queue.groups:
                    if mask != 1:
                        lane = queue.lanes[mask.bit_length() - 1]
                    head = lane.head
                    record: Record = head[0]  # type: ignore[assignment]
                    deadline, number = now + timeout, record.deliveries + 1
                    lease = Lease(record, number, now, deadline, timeout, record.extra)
                    line.append(lease)
                    head.popleft()
                    if queue.strays:
                        queue.strays.pop(record.key, None)
                    if head:
                        pass
                    elif head is not lane.tail:
                        lane.advance()
                    else:
                        queue.mask = 0 if mask == 1 else mask ^ (1 << record.priority)
                    if deadline < queue.wake_at:
                        queue.wake_at = deadline
            except BaseException:
                if lease is not None:
                    finish(queue, Leased([lease]))
                raise
            finally:
                del held
                give(None)
            if lease is not None:
                try:
                    return [
                        self._kind(
                            self._unpack(
                                record.body  # type: ignore[arg-type]
                                if record.attributes is None  # type: ignore[possibly-undefined]
                                else self._bodies((record,))[0]
                            ),
                            number,  # type: ignore[possibly-undefined]
                            lease,
                            self._face,
                        )
                    ]
                except QUICK_ERRORS:
                    self._open([lease], self._kind, self._face)
        self._refuse_if_closed()
        return self._receive(count, timeout, wait)

    def _quick_acknowledge_many(self, messages: Iterable[Message[T]]) -> list[bool]:
        leases = self._leases(messages)
        token, give, clock, queue, lines, _ = self._settling
        done = 0
        try:
            del token[0]
        except IndexError:
            return self._desk.acknowledge(leases)
        held = token
        try:
            now = clock()
            usual = lines and not queue.groups and not queue.leases.unusual
            try:
                for lease in leases if usual and now < queue.wake_at else ():
                    if lease.deadline <= now:
                        break
                    lease.deadline = 0  # so one that is named twice counts once
                    done += 1
            finally:
                queue.leases.stale += done
            if queue.leases.stale > STALE_MAX:
                queue.leases.tidy()
        finally:
            del held
            give(None)
        answers = [True] * done
        return answers if done == len(leases) else answers + self._desk.acknowledge(leases[done:])

    def close(self) -> None:
        """Wake every parked receive; nothing can be sent or received through it any more."""
        super().close()
        self._tools = [], *self._tools[1:]  # no token: an open mailbox need not ask

    if not TYPE_CHECKING:  # options that come as one dict cost less than as many defaults
        send = update_wrapper(_quick_send, LocalMailbox.send)
        send_many = update_wrapper(_quick_send_many, LocalMailbox.send_many)
        receive = update_wrapper(_quick_receive, LocalMailbox.receive)
        acknowledge_many = update_wrapper(_quick_acknowledge_many, LocalMailbox.acknowledge_many)

    def _open_by_name(self, name: str) -> LocalMailbox[Any] | None:
        """Where a reply goes: a name in this store, or `memory:name` for the shared one."""
        scheme, colon, rest = name.partition(":")
        store = shared_store if colon and scheme == "memory" else self._store
        desk = store.desk_for_answer(rest if colon else name)
        return None if desk is None else LocalMailbox(desk, open_reply=self._open_by_name)


class AsyncInMemoryMailbox(AsyncLocalMailbox[T], Generic[T]):
    """`InMemoryMailbox` for asyncio: the same arguments, and verbs to await."""

    @overload
    def __init__(
        self: AsyncInMemoryMailbox[Any],
        name: str,
        body_type: SpecialForm,
        **options: Unpack[MemoryOptions],
    ) -> None: ...
    @overload
    def __init__(self, name: str, body_type: type[T], **options: Unpack[MemoryOptions]) -> None: ...
    @overload
    def __init__(self, name: str = "mailbox", **options: Unpack[MemoryOptions]) -> None: ...
    def __init__(
        self, name: str = "mailbox", body_type: Any = Any, **options: Unpack[MemoryOptions]
    ) -> None:
        box: InMemoryMailbox[T] = InMemoryMailbox(name, body_type, **options)
        super().__init__(box)
        box._kind, box._face = AsyncMemoryMessage, self
        self._settling = box._settling

    async def _quick_send(self, body: T, **options: Unpack[SendOptions]) -> str:
        return self._here().send(body, **options)

    async def _quick_receive(self, **options: Unpack[ReceiveOptions]) -> Sequence[AsyncMessage[T]]:
        wait = options.pop("wait_time_seconds", 0)
        limits.seconds("wait_time_seconds", wait, _WAIT_MAX)
        messages: Any = self._here().receive(**options)  # of the kind that was set above
        if messages or not wait:
            return messages  # type: ignore[no-any-return]
        options["wait_time_seconds"] = wait
        return await super().receive(**options)

    if not TYPE_CHECKING:  # options that come as one dict cost less than as many defaults
        send = update_wrapper(_quick_send, AsyncLocalMailbox.send)
        receive = update_wrapper(_quick_receive, AsyncLocalMailbox.receive)

    def __set_type__(self, alias: Any) -> None:
        """`AsyncInMemoryMailbox[Order]("orders")`: the type in brackets is the body's type."""
        self._sync.__set_type__(alias)

    __orig_class__ = property(fset=__set_type__)


shared_store = Store()  # what `memory:` URLs of this process name
