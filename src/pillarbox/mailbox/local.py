"""Mailboxes on a session of a store of this process: the same for memory and for disk."""

from __future__ import annotations

from operator import call
from typing import Any, Generic, TypeVar, cast

from pillarbox.codec import codec_for
from pillarbox.core import limits
from pillarbox.mailbox.abstract import AbstractAsyncMailbox, AbstractMailbox
from pillarbox.mailbox.local_connection import AsyncLocalConnection, LocalConnection
from pillarbox.mailbox.local_verbs import LocalVerbs
from pillarbox.mailbox.queue_session import QueueSession
from pillarbox.mailbox.runner import Connection
from pillarbox.mailbox.store import Store
from pillarbox.mailbox.verbs import Verbs

T = TypeVar("T")


class LocalMailbox(AbstractMailbox[T], Generic[T]):
    """A mailbox whose queue lives in this process."""

    _verbs: LocalVerbs[T]

    def __init__(
        self,
        session: QueueSession,
        body_type: Any = Any,
        *,
        max_body_bytes: int = limits.BODY_BYTES_MAX,
    ) -> None:
        verbs: LocalVerbs[T] = LocalVerbs(session, codec_for(body_type), max_body_bytes)
        self._start(verbs, LocalConnection())

    def _connect(self, verbs: Verbs[T, Any], connection: Connection) -> None:
        super()._connect(verbs, connection)
        self._run = cast("Any", call)  # a verb is a callable that does all of it

    @property
    def _session(self) -> QueueSession:
        return self._verbs.session

    @property
    def _store(self) -> Store:
        return self._verbs.store


class AsyncLocalMailbox(AbstractAsyncMailbox[T], Generic[T]):
    """`LocalMailbox` for asyncio. It belongs to the event loop that first uses it."""

    _verbs: LocalVerbs[T]

    def __init__(self, mailbox: LocalMailbox[T]) -> None:
        self._connect(mailbox._verbs, AsyncLocalConnection(mailbox._verbs))
        self._opened = True

    @property
    def _session(self) -> QueueSession:
        return self._verbs.session
