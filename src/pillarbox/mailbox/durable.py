"""Mailboxes on disk: the default when there is no server. Confirmed means on disk.

A store is a directory; its mailboxes share one log, and one process at a time may have it
open. Mailboxes of one process that name the same directory share the store.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import update_wrapper
from typing import TYPE_CHECKING, Any, Generic, TypeVar, Unpack, overload

from pillarbox.clock import Clock
from pillarbox.codec import QUICK_ERRORS
from pillarbox.core import limits
from pillarbox.core.errors import InvalidParameterError
from pillarbox.core.queue import Lease
from pillarbox.log import Disk, Durability, Retention
from pillarbox.mailbox.async_local import AsyncLocalMailbox
from pillarbox.mailbox.ledger import DurableDesk, DurableStore
from pillarbox.mailbox.local import LocalMailbox, LocalOptions, check_options, open_desk
from pillarbox.mailbox.message import Message
from pillarbox.mailbox.protocol import ReceiveOptions, SendOptions, SpecialForm
from pillarbox.mutex import Mutex, now_or_soon, reentrant_call

T = TypeVar("T")


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
            assert isinstance(desk, DurableDesk)
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
        return self._store.prefix + str(desk.send_one(data))

    def _quick_receive(self, **options: Unpack[ReceiveOptions]) -> Sequence[Message[T]]:
        count, timeout, wait = 1, _VISIBILITY_NS, 0
        if options or self._closed:
            count, timeout, wait = self._receive_options(**options)
        lease = self._durable.receive_one(timeout) if count == 1 else None
        if lease is not None:
            data: Any = self._durable.store.body(lease.record)
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

    def _open_by_name(self, name: str, body_type: Any) -> LocalMailbox[Any]:
        desk = self._store.desk(limits.queue_name(name, "reply_to"))
        return LocalMailbox(desk, body_type, open_reply=self._open_by_name)


class AsyncDurableMailbox(AsyncLocalMailbox[T], Generic[T]):
    """`DurableMailbox` for asyncio: the same arguments, and verbs to await."""

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
        super().__init__(DurableMailbox(name, body_type, **options))


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
