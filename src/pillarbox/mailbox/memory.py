"""Mailboxes in memory, for tests and single-process programs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import update_wrapper
from sys import modules
from typing import TYPE_CHECKING, Any, Generic, Unpack

from pillarbox.clock import Clock
from pillarbox.codec import QUICK_ERRORS, Codec, codec_for
from pillarbox.core import limits
from pillarbox.core.events import Leased
from pillarbox.core.finish import finish
from pillarbox.core.leases import STALE_MAX
from pillarbox.core.queue import Lease, Record
from pillarbox.mailbox.local import AsyncLocalMailbox, LocalMailbox, LocalOptions, open_session
from pillarbox.mailbox.local_verbs import AsyncLocalConnection, LocalConnection, LocalVerbs
from pillarbox.mailbox.message import AsyncMessage, Delivered, Message
from pillarbox.mailbox.message_ids import ABOVE, LOW, LOW_BITS
from pillarbox.mailbox.options import check_options, openers
from pillarbox.mailbox.protocol import (
    ANY,
    B,
    BatchOptions,
    BodyType,
    ReceiveOptions,
    SendOptions,
)
from pillarbox.mailbox.queue_session import QueueSession
from pillarbox.mailbox.store import Store
from pillarbox.mailbox.verbs import Verbs
from pillarbox.mutex import uninterrupted
from pillarbox.tracing import API

_VISIBILITY_NS = limits.VISIBILITY_SECONDS_DEFAULT * limits.SECOND_NS
_WAIT_MAX = limits.WAIT_SECONDS_MAX
_QUICK_OPTIONS = {"priority", "attributes"}


class MemoryOptions(LocalOptions, total=False):
    """Options to open a mailbox in memory."""

    store: Store | None
    clock: Clock | None


_OPTIONS = tuple(MemoryOptions.__annotations__)


def _acknowledge(message: Delivered[Any], *, strict: bool = False) -> bool:
    """Delete the message: the work is done."""
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
    """Acknowledge on the general path."""
    answer: bool = message._mailbox._settling[-1]._acknowledge(message._delivery)
    return message._strictly(answer, "acknowledge") if strict else answer


class MemoryVerbs(LocalVerbs[B]):
    """The verbs of a queue in memory."""

    def session_for_answer(self, name: str) -> QueueSession | None:
        """Look up a name in this store, or `memory:name` in the shared store."""
        store = shared_store if name.startswith("memory:") else self.store
        plain = limits.queue_name(name.removeprefix("memory:"), "reply_to")
        return store.session_for_answer(plain)


class MemoryMessage(Message[B], Generic[B], frozen=True, eq=False, gc=False):
    """A message in memory, with a faster `acknowledge`."""

    acknowledge = _acknowledge


class AsyncMemoryMessage(AsyncMessage[B], Generic[B], frozen=True, eq=False, gc=False):
    """`MemoryMessage` for asyncio."""

    async def acknowledge(self, *, strict: bool = False) -> bool:
        """Delete the message: the work is done."""
        self._mailbox._connection._moved()
        return _acknowledge(self, strict=strict)


class InMemoryMailbox(LocalMailbox[B], Generic[B]):
    """A mailbox in the memory of this process. Thread-safe.

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

    def __init__(
        self, name: str = "mailbox", body_type: BodyType[B] = ANY, **options: Unpack[MemoryOptions]
    ) -> None:
        check_options(options, _OPTIONS)
        store = options.get("store") or Store(options.get("clock"))
        session = open_session(store, name, options)
        max_body_bytes = options.get("max_body_bytes", limits.BODY_BYTES_MAX)
        verbs: LocalVerbs[B] = MemoryVerbs(session, codec_for(body_type), max_body_bytes)
        self._share(verbs, LocalConnection())

    def _share(self, verbs: Verbs[B, Any], connection: Any) -> None:
        super()._share(verbs, connection)
        self._mailbox: Any = self  # the mailbox of the messages it receives
        self._use(verbs.codec)

    def _use(self, codec: Codec[B]) -> None:
        """Put what the fast paths need into one tuple each, which is faster than attributes."""
        verbs = self._verbs
        verbs.use(codec)
        self._pack, self._unpack = codec.quick_encode, codec.quick_decode
        self._max_body_bytes = verbs.max_body_bytes
        session, store, queue = verbs.session, verbs.store, verbs.session.queue
        token, give, clock = store.lock.token, store.lock.give, store.clock.now
        lane, lines = queue.lanes[0], queue.leases.lines
        self._tools = token, give, clock, queue, session, store, lane, lines
        self._settling = token, give, clock, queue, lines, self

    # The hot path: what `LocalMailbox`, `decide` and `apply` do for plain messages, in one frame
    # per verb. Plain means no delay, no group, no policy, no trace, and no contention.
    # tests/unit/test_hot_path.py compares each verb with the general one. Measured gains: send 5 x,
    # receive 7 x, acknowledge 10 x, send_many 1.8 x (of 100). Locals are faster than
    # attributes in CPython. A signal handler may raise after any call, so every step that was begun
    # is completed.

    def _quick_send(  # noqa: PLR0915 - splitting it would cost another frame
        self, body: B, **options: Unpack[SendOptions]
    ) -> str:
        token, give, clock, queue, session, store, lane, _ = self._tools
        quick, priority, attributes = session.plain and API not in modules, 0, None
        if options:
            priority = options.get("priority", 0)
            quick = quick and options.keys() <= _QUICK_OPTIONS and priority.__class__ is int
        if not quick:
            return self._run(self._verbs.send((body,), **options))[0]
        try:
            data = self._pack(body)
        except QUICK_ERRORS:
            data = self._verbs.codec.encode(body)
        if len(data) > self._max_body_bytes:
            limits.body_bytes(data, self._max_body_bytes)
        if options:
            limits.priority(priority)
            if (given := options.get("attributes")) is not None:
                attributes = self._verbs._checked_attributes(given, None, len(data))
        try:
            del token[0]
        except IndexError:
            return super().send(body, **options)
        held = token
        try:
            now = clock()
            if now >= queue.wake_at:
                session.settle(now)
            key = now >> 1  # inlined `Store.new_keys`
            if key <= store.last_key:
                key = store.last_key + 1
            store.last_key = key
            if options:
                queue.lanes[priority].tail.append(Record(key, data, priority, 0, attributes))
            else:
                lane.tail.append(Record(key, data))
            queue.mask |= 1 << priority
            if session.waiters:
                session.serve(now)
        except BaseException:
            if queue.lanes[priority]:
                queue.mask |= 1 << priority
            raise
        finally:
            del held
            give(None)
        return store.ids[key >> LOW_BITS] + hex(key & LOW | ABOVE)[3:]  # inlined `Store.message_id`

    def _quick_send_many(self, bodies: Iterable[B], **options: Unpack[BatchOptions]) -> list[str]:
        token, give, clock, queue, session, store, lane, _ = self._tools
        if options or not session.plain or API in modules:
            return super().send_many(bodies, **options)
        bodies = list(bodies)
        data = self._verbs.encoded(bodies)
        try:
            del token[0]
        except IndexError:
            return super().send_many(bodies)
        held = token
        try:
            now = clock()
            if now >= queue.wake_at:
                session.settle(now)
            keys = store.new_keys(now, len(data))
            lane.extend(map(Record, keys, data))
            if lane:
                queue.mask |= 1
            if session.waiters:
                session.serve(now)
        except BaseException:
            if lane:
                queue.mask |= 1
            raise
        finally:
            del held
            give(None)
        return store.message_ids(keys)

    def _quick_receive(  # noqa: PLR0915 - splitting it would cost another frame
        self, **options: Unpack[ReceiveOptions]
    ) -> Sequence[Message[B]]:
        count, timeout, wait = 1, _VISIBILITY_NS, 0
        if options:
            seconds: Any = options.get("wait_time_seconds")
            if len(options) == 1 and seconds.__class__ is int and 0 <= seconds <= _WAIT_MAX:
                wait = seconds * limits.SECOND_NS
            else:
                count, timeout, wait = self._verbs.receive_options(**options)
        token, give, clock, queue, session, _, lane, lines = self._tools
        if count == 1 and session.plain:
            try:
                del token[0]
            except IndexError:
                return self._receive(1, timeout, wait)
            held = token
            lease = None
            try:
                now = clock()
                if now >= queue.wake_at:
                    session.settle(now)
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
                    if queue.out_of_order:
                        queue.out_of_order.pop(record.key, None)
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
                    uninterrupted(finish, queue, Leased([lease]))
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
                                else self._verbs.bodies((record,))[0]
                            ),
                            number,  # type: ignore[possibly-undefined]
                            lease,
                            self._mailbox,
                        )
                    ]
                except QUICK_ERRORS:
                    self._verbs.messages([lease], self._mailbox)
        return self._receive(count, timeout, wait)

    def _receive(self, count: int, timeout: int, wait: int) -> list[Message[B]]:
        """Receive on the general path."""
        self._verbs.refuse_if_closed()
        return self._verbs._receive(self._mailbox, count, timeout, wait)()

    def close(self) -> None:
        super().close()
        self._tools = [], *self._tools[1:]  # no token: fast paths need not check `closed`

    if not TYPE_CHECKING:  # one dict of options is cheaper to pass than many defaults
        send = update_wrapper(_quick_send, LocalMailbox.send)
        send_many = update_wrapper(_quick_send_many, LocalMailbox.send_many)
        receive = update_wrapper(_quick_receive, LocalMailbox.receive)


class AsyncInMemoryMailbox(AsyncLocalMailbox[B], Generic[B]):
    """`InMemoryMailbox` for asyncio: the same arguments and methods, as coroutines."""

    _kind = AsyncMemoryMessage

    def __init__(
        self, name: str = "mailbox", body_type: BodyType[B] = ANY, **options: Unpack[MemoryOptions]
    ) -> None:
        box: InMemoryMailbox[B] = InMemoryMailbox(name, body_type, **options)
        self._share(box._verbs, AsyncLocalConnection(box._verbs))

    def _share(self, verbs: Verbs[B, Any], connection: Any) -> None:
        super()._share(verbs, connection)
        box: InMemoryMailbox[B] = object.__new__(InMemoryMailbox)  # provides the fast paths
        box._share(verbs, LocalConnection())
        box._kind, box._mailbox = self._kind, self
        self._sync, self._settling = box, box._settling

    async def _quick_send(self, body: B, **options: Unpack[SendOptions]) -> str:
        self._connection._moved()
        return self._sync.send(body, **options)

    async def _quick_receive(self, **options: Unpack[ReceiveOptions]) -> Sequence[AsyncMessage[B]]:
        wait = options.pop("wait_time_seconds", 0)
        limits.seconds("wait_time_seconds", wait, _WAIT_MAX)
        self._connection._moved()
        messages: Any = self._sync.receive(**options)  # of the class set in `_share`
        if messages or not wait:
            return messages  # type: ignore[no-any-return]
        options["wait_time_seconds"] = wait
        return await super().receive(**options)

    if not TYPE_CHECKING:  # one dict of options is cheaper to pass than many defaults
        send = update_wrapper(_quick_send, AsyncLocalMailbox.send)
        receive = update_wrapper(_quick_receive, AsyncLocalMailbox.receive)

    def _use(self, codec: Codec[B]) -> None:
        self._sync._use(codec)

    async def close(self) -> None:
        self._sync.close()


shared_store = Store()  # what `memory:` URLs of this process name


def _name_and_options(url: str) -> tuple[str, dict[str, Any]]:
    """memory:orders is the mailbox `orders` of this process."""
    return url.partition(":")[2], {"store": shared_store}


open_url, open_async_url = openers(InMemoryMailbox, AsyncInMemoryMailbox, _name_and_options)
