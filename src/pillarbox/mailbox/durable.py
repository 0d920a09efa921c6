"""Mailboxes on disk: the default without a server. Confirmed means on disk.

A store is a directory. Its mailboxes share one log, and only one process at a time can have it
open. Mailboxes of one process that name the same directory share the store.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from sys import modules
from typing import Any, Generic, Self, Unpack

from pillarbox.clock import Clock
from pillarbox.codec import QUICK_ERRORS, codec_for
from pillarbox.core import limits
from pillarbox.core.errors import InvalidParameterError
from pillarbox.core.queue import Lease
from pillarbox.log import Disk, Durability, Retention
from pillarbox.log.log import SEGMENT_BYTES_MIN
from pillarbox.mailbox.data_directory import file_path
from pillarbox.mailbox.durable_session import DurableQueueSession
from pillarbox.mailbox.durable_store import DurableStore
from pillarbox.mailbox.local import AsyncLocalMailbox, LocalMailbox, LocalOptions, open_session
from pillarbox.mailbox.local_verbs import (
    AsyncLocalConnection,
    LocalConnection,
    LocalVerbs,
    OpenStore,
)
from pillarbox.mailbox.message import Message
from pillarbox.mailbox.options import check_options, openers
from pillarbox.mailbox.protocol import ANY, B, BodyType, ReceiveOptions, SendOptions
from pillarbox.mailbox.runner import Step
from pillarbox.mailbox.verbs import Verbs
from pillarbox.mutex import Mutex, reentrant_call
from pillarbox.tracing import API


class DurableOptions(LocalOptions, total=False):
    """Options to open a mailbox on disk. An existing queue keeps its settings.

    A store saves `segment_bytes` and `history` when they are given, and uses them from then on.
    """

    path: str | os.PathLike[str]
    durability: Durability
    segment_bytes: int
    history: Retention | None
    clock: Clock | None
    disk: Disk | None


_VISIBILITY_NS = limits.VISIBILITY_SECONDS_DEFAULT * limits.SECOND_NS
_OPTIONS = tuple(DurableOptions.__annotations__)


class DurableMailbox(LocalMailbox[B], Generic[B]):
    """A mailbox in the directory `path`.

    Methods that change the queue return when the change is on disk (`durability="fsync"`, the
    default), when it survives a killed process (`"os"`), or immediately (`"memory"`).
    """

    _verbs: DurableVerbs[B]

    def __init__(
        self, name: str, body_type: BodyType[B] = ANY, **options: Unpack[DurableOptions]
    ) -> None:
        verbs: DurableVerbs[B] = DurableVerbs(name, body_type, options)
        self._start(verbs, LocalConnection(verbs.close_store))

    def send(self, body: B, **options: Unpack[SendOptions]) -> str:
        verbs = self._verbs
        if options or verbs.closed or API in modules:
            return super().send(body, **options)
        try:
            data = verbs.codec.quick_encode(body)
        except QUICK_ERRORS:
            data = verbs.codec.encode(body)
        if len(data) > verbs.max_body_bytes:
            limits.body_bytes(data, verbs.max_body_bytes)
        return verbs.store.ids.of(verbs.session.send((data,))[0])

    def receive(self, **options: Unpack[ReceiveOptions]) -> Sequence[Message[B]]:
        count, timeout, verbs = 1, _VISIBILITY_NS, self._verbs
        if options or verbs.closed:
            count, timeout, _ = verbs.receive_options(**options)
        lease = verbs.session.receive_one(timeout) if count == 1 else None
        if lease is not None:
            record = lease.record
            plain = record.attributes is None
            data: Any = verbs.store.body(record) if plain else verbs.bodies((record,))[0]
            try:
                return [Message(verbs.codec.quick_decode(data), lease.number, lease, self)]
            except QUICK_ERRORS:  # the body is lost or does not decode: dead-letter it and continue
                verbs.messages((lease,), self)
        return super().receive(**options)

    def _acknowledge(self, delivery: Lease) -> bool:
        return self._verbs.session.acknowledge_one(delivery)


class AsyncDurableMailbox(AsyncLocalMailbox[B], Generic[B]):
    """`DurableMailbox` for asyncio: the same arguments and methods, as coroutines.

    `async with`, `await mailbox.open()` or the first awaited call opens it, in a thread, because
    reading a long log takes a while. Until then `dead_letters` is None.
    """

    def __init__(
        self, name: str, body_type: BodyType[B] = ANY, **options: Unpack[DurableOptions]
    ) -> None:
        self._verbs: DurableVerbs[B] = DurableVerbs(name, body_type, options)
        self._connect(self._verbs, AsyncLocalConnection(self._verbs, self._verbs.close_store))

    async def close(self) -> None:
        """Wake all waiting receives. Closing the last mailbox of a store closes the store."""
        if self._opening is not None:
            self._verbs.closed = True
            await asyncio.wait([self._opening])
        await super().close()


class DurableVerbs(LocalVerbs[B]):
    """The verbs of a queue on disk."""

    store: DurableStore
    session: DurableQueueSession

    def __init__(self, name: str, body_type: Any, options: DurableOptions) -> None:
        check_options(options, _OPTIONS)
        limits.queue_name(name)
        if options.get("segment_bytes") is not None:
            limits.whole("segment_bytes", options["segment_bytes"], SEGMENT_BYTES_MIN, 1 << 40)
        if not isinstance(options.get("history"), Retention | None):
            raise InvalidParameterError("history", options["history"], "a Retention or None")
        max_body_bytes = options.get("max_body_bytes", limits.BODY_BYTES_MAX)
        Verbs.__init__(self, name, codec_for(body_type), max_body_bytes)
        self._options = options
        self._shared: _Shared | None = None

    @property
    def where(self) -> str:  # type: ignore[override]
        return "" if self._shared is None else super().where

    def open(self) -> Step[None]:
        return OpenStore(self._open_store)

    def _open_store(self) -> None:
        shared = _open(self._options, self)
        try:
            self.use_session(open_session(shared.store, self.name, self._options))
        except BaseException:
            shared.release(self)
            raise
        self._shared = shared

    def dead_letters(self) -> Self | None:
        return None if self._shared is None else super().dead_letters()

    def wake(self) -> None:
        if self._shared is not None:
            super().wake()

    def close_store(self) -> None:
        if self._shared is not None:
            self._shared.release(self)


class _Shared:
    """A store that is open in this process, and the mailboxes that use it."""

    def __init__(self, key: str, store: DurableStore) -> None:
        self.key = key
        self.store = store
        self.users: set[object] = set()

    def release(self, user: object) -> None:
        """Remove this user; the last one closes the store."""
        if self.store.busy_here:
            raise reentrant_call()
        with _lock:
            if user in self.users:
                self.users.remove(user)
                if not self.users:
                    del _open_stores[self.key]
                    self.store.close()

    def close(self) -> None:
        """Close the store, whatever mailboxes still use it."""
        for user in list(self.users):
            self.release(user)


_lock = Mutex()
_open_stores: dict[str, _Shared] = {}


def _open(options: DurableOptions, user: object) -> _Shared:
    path = options.get("path", "./data")
    disk = options.get("disk")
    if disk is None and not options.get("create", True) and not os.path.isdir(path):
        raise InvalidParameterError("path", path, "an existing store if create=False")
    key = os.path.realpath(path) if disk is None else f"{id(disk)}:{path}"
    durability = options.get("durability", "fsync")
    limits.one_of("durability", durability, ("fsync", "os", "memory"))
    with _lock:
        shared = _open_stores.get(key)
        if shared is None:
            store = DurableStore(
                path,
                durability=durability,
                segment_bytes=options.get("segment_bytes"),
                history=options.get("history"),
                clock=options.get("clock"),
                disk=disk,
            )
            shared = _open_stores[key] = _Shared(key, store)
        elif "durability" in options and shared.store.log.durability != durability:
            raise InvalidParameterError(
                "durability", durability, f"{shared.store.log.durability!r}, as {path} is open"
            )
        shared.users.add(user)
        return shared


def _name_and_path(url: str) -> tuple[str, dict[str, Any]]:
    """Return name and path: file:./data/orders is the mailbox `orders` of the store `./data`."""
    path, slash, name = (file_path(url) or "").rpartition("/")
    return name, {"path": path or "/" if slash else "."}


open_url, open_async_url = openers(DurableMailbox, AsyncDurableMailbox, _name_and_path)
