"""Mailboxes on disk: the default when there is no server. Confirmed means on disk.

A store is a directory; its mailboxes share one log, and one process at a time may have it
open. Mailboxes of one process that name the same directory share the store.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from functools import update_wrapper
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar, Unpack, get_args, overload

from pillarbox.clock import Clock
from pillarbox.codec import QUICK_ERRORS, Codec, codec_for
from pillarbox.core import limits
from pillarbox.core.errors import InvalidParameterError, MailboxClosedError, MailboxFullError
from pillarbox.core.queue import Lease
from pillarbox.log import Disk, Durability, Retention
from pillarbox.mailbox.async_local import AsyncLocalMailbox
from pillarbox.mailbox.durable_store import DurableQueueSession, DurableStore
from pillarbox.mailbox.local import LocalMailbox
from pillarbox.mailbox.local_options import LocalOptions, check_options, open_desk
from pillarbox.mailbox.message import Message
from pillarbox.mailbox.protocol import ReceiveOptions, SendOptions, SpecialForm
from pillarbox.mutex import Mutex, now_or_soon, reentrant_call

T = TypeVar("T")
R = TypeVar("R")


class DurableOptions(LocalOptions, total=False):
    """How a mailbox on disk may be opened. A queue that exists keeps its own settings.

    A store keeps the `segment_bytes` and the `history` that it was last opened with.
    """

    path: str | os.PathLike[str]
    durability: Durability
    segment_bytes: int
    history: Retention | None
    clock: Clock | None
    disk: Disk | None


_VISIBILITY_NS = limits.VISIBILITY_SECONDS_DEFAULT * limits.SECOND_NS
_OPTIONS = tuple(DurableOptions.__annotations__)


class DurableMailbox(LocalMailbox[T], Generic[T]):
    """A mailbox in the directory `path`.

    `send`, `acknowledge` and the like return when their effect is on disk (`durability="fsync"`,
    the default), safe from a killed process (`"os"`), or at once (`"memory"`).
    """

    _store: DurableStore

    @overload
    def __init__(
        self: DurableMailbox[Any],
        name: str,
        body_type: SpecialForm,
        **options: Unpack[DurableOptions],
    ) -> None: ...
    @overload
    def __init__(
        self, name: str, body_type: type[T], **options: Unpack[DurableOptions]
    ) -> None: ...
    @overload
    def __init__(self, name: str, **options: Unpack[DurableOptions]) -> None: ...
    def __init__(self, name: str, body_type: Any = Any, **options: Unpack[DurableOptions]) -> None:
        check_options(options, _OPTIONS)
        limits.queue_name(name)
        self._shared = _open(options)
        try:
            desk = open_desk(self._shared.store, name, options)
            max_body_bytes = options.get("max_body_bytes", limits.BODY_BYTES_MAX)
            super().__init__(
                desk, body_type, open_reply=self._open_by_name, max_body_bytes=max_body_bytes
            )
            assert isinstance(desk, DurableQueueSession)
            self._durable = desk
        except BaseException:
            self._shared.let_go()
            raise

    def _quick_send(self, body: T, **options: Unpack[SendOptions]) -> str:
        desk = self._durable
        if options or self._closed or desk.queue.settings.capacity is not None:
            return super().send(body, **options)
        try:
            data = self._pack(body)
        except QUICK_ERRORS:
            data = self._encode(body)
        limits.body_bytes(data, self._max_body_bytes)
        try:
            key = desk.send_one(data)
        except MailboxFullError:
            (key,) = desk.send((data,))  # it waits for room that can be had
        return self._store.ids.of(key)

    def _quick_receive(self, **options: Unpack[ReceiveOptions]) -> Sequence[Message[T]]:
        count, timeout, wait = 1, _VISIBILITY_NS, 0
        if options or self._closed:
            count, timeout, wait = self._receive_options(**options)
        lease = self._durable.receive_one(timeout) if count == 1 else None
        if lease is not None:
            record = lease.record
            plain = record.attributes is None
            data: Any = self._store.body(record) if plain else self._bodies((record,))[0]
            try:
                return [Message(self._unpack(data), lease.number, lease, self)]
            except QUICK_ERRORS:  # it does not decode, or was lost: see to that, and go on
                self._open((lease,), Message, self)
        return self._receive(count, timeout, wait)

    def _acknowledge(self, lease: Lease) -> bool:
        return self._durable.acknowledge_one(lease)

    if not TYPE_CHECKING:  # options that come as one dict cost less than as many defaults
        send = update_wrapper(_quick_send, LocalMailbox.send)
        receive = update_wrapper(_quick_receive, LocalMailbox.receive)

    def close(self) -> None:
        """Wake every parked receive; the last mailbox of a store that closes, closes the store."""
        if not self.closed:
            super().close()
            now_or_soon(self._shared.let_go)

    def _open_by_name(self, name: str) -> LocalMailbox[Any] | None:
        desk = self._store.desk_for_answer(limits.queue_name(name, "reply_to"))
        return None if desk is None else LocalMailbox(desk, open_reply=self._open_by_name)


class AsyncDurableMailbox(AsyncLocalMailbox[T], Generic[T]):
    """`DurableMailbox` for asyncio: the same arguments, and verbs to await.

    It is opened by its first verb, by `async with`, or by `await mailbox.open()`: in a thread, for
    reading a long log takes a while. Until then `dead_letters` is None.
    """

    @overload
    def __init__(
        self: AsyncDurableMailbox[Any],
        name: str,
        body_type: SpecialForm,
        **options: Unpack[DurableOptions],
    ) -> None: ...
    @overload
    def __init__(
        self, name: str, body_type: type[T], **options: Unpack[DurableOptions]
    ) -> None: ...
    @overload
    def __init__(self, name: str, **options: Unpack[DurableOptions]) -> None: ...
    def __init__(self, name: str, body_type: Any = Any, **options: Unpack[DurableOptions]) -> None:
        check_options(options, _OPTIONS)
        self._name = limits.queue_name(name)
        self._codec: Codec[T] = codec_for(body_type)
        self._options = options
        self._opening: asyncio.Task[None] | None = None
        self._closed = False

    def __set_type__(self, alias: Any) -> None:
        """`AsyncDurableMailbox[Order]("orders")`: the type in brackets is the body's type."""
        (body_type,) = get_args(alias)
        if not isinstance(body_type, TypeVar):
            self._codec = codec_for(body_type)

    __orig_class__ = property(fset=__set_type__)

    @property
    def name(self) -> str:
        """The queue's name."""
        return self._name

    @property
    def closed(self) -> bool:
        """True after `close`."""
        return self._closed

    @property
    def dead_letters(self) -> AsyncLocalMailbox[T] | None:
        """The mailbox of this one's dead letters, if it has a policy; known once it is open."""
        return super().dead_letters if self._is_open else None

    @property
    def _is_open(self) -> bool:
        return hasattr(self, "_sync")

    async def open(self) -> Self:
        """Open the store, unless it is open in this process, and the queue in it."""
        if self._is_open:
            return self
        if self._closed:
            raise MailboxClosedError(
                f"mailbox {self._name!r} was closed: open it again to send or receive"
            )
        if self._opening is None:  # once, however many ask
            self._opening = asyncio.get_running_loop().create_task(self._open_in_thread())
        opening = self._opening
        try:
            await asyncio.shield(opening)
        finally:
            if opening.done():
                self._opening = None  # if it failed, the next one may have more luck
        return self

    async def _open_in_thread(self) -> None:
        def make() -> DurableMailbox[T]:
            return DurableMailbox(self._name, **self._options)

        box = await asyncio.to_thread(make)
        box._use(self._codec)
        super().__init__(box)

    async def close(self) -> None:
        """Wake every parked receive; the last mailbox of a store that closes, closes the store."""
        self._closed = True
        if self._opening is not None:
            await asyncio.wait([self._opening])
        if self._is_open:
            await asyncio.to_thread(self._sync.close)

    def __repr__(self) -> str:
        return super().__repr__() if self._is_open else f"{type(self).__name__}({self._name!r})"

    async def _opened(self) -> LocalMailbox[T]:
        await self.open()
        return self._here()


class _Shared:
    """A store that is open in this process, and by how many mailboxes."""

    def __init__(self, place: str, store: DurableStore) -> None:
        self.place = place
        self.store = store
        self.users = 0

    def let_go(self, users: int = 1) -> None:
        if self.store.busy_here:
            raise reentrant_call()
        with _lock:
            self.users -= users
            if self.users == 0:
                del _open_stores[self.place]
                self.store.close()

    def close(self) -> None:
        """Close the store under all its mailboxes."""
        self.let_go(self.users)


_lock = Mutex()
_open_stores: dict[str, _Shared] = {}


def _open(options: DurableOptions) -> _Shared:
    path = options.get("path", "./data")
    disk = options.get("disk")
    if disk is None and not options.get("create", True) and not os.path.isdir(path):
        raise InvalidParameterError("path", path, "that of a store that exists, with create=False")
    place = os.path.realpath(path) if disk is None else f"{id(disk)}:{path}"
    durability = options.get("durability", "fsync")
    limits.one_of("durability", durability, ("fsync", "os", "memory"))
    with _lock:
        shared = _open_stores.get(place)
        if shared is None:
            store = DurableStore(
                path,
                durability=durability,
                segment_bytes=options.get("segment_bytes"),
                history=options.get("history"),
                clock=options.get("clock"),
                disk=disk,
            )
            shared = _open_stores[place] = _Shared(place, store)
        elif "durability" in options and shared.store.log.durability != durability:
            raise InvalidParameterError(
                "durability", durability, f"{shared.store.log.durability!r}, as {path} is open"
            )
        shared.users += 1
        return shared
