"""Mailboxes whose store is in this process: the code shared by memory and disk."""

from __future__ import annotations

from collections.abc import Mapping
from operator import call
from typing import Any, Generic, TypeVar, cast

from pillarbox.codec import codec_for
from pillarbox.core import limits
from pillarbox.core.queue import Settings
from pillarbox.mailbox.abstract import AbstractAsyncMailbox, AbstractMailbox
from pillarbox.mailbox.answers import is_reply_queue
from pillarbox.mailbox.local_verbs import AsyncLocalConnection, LocalConnection, LocalVerbs
from pillarbox.mailbox.options import default_redelivery
from pillarbox.mailbox.protocol import DeadLetterPolicy, FairOptions
from pillarbox.mailbox.queue_session import QueueSession
from pillarbox.mailbox.runner import Connection
from pillarbox.mailbox.store import Store, no_queue
from pillarbox.mailbox.verbs import Verbs

T = TypeVar("T")


class LocalOptions(FairOptions, total=False):
    """Options to open a mailbox in memory or on disk."""

    max_body_bytes: int


def open_session(store: Store, name: str, options: Mapping[str, Any]) -> QueueSession:
    """Open a queue. Only a new queue takes these settings; any takes the dead-letter policy."""
    if not options.get("create", True) and name not in store.sessions:
        raise no_queue(name)
    limits.queue_name(name)
    policy: DeadLetterPolicy | None = options.get("dead_letters")
    dead_name = None if policy is None else policy.queue_of(name)  # before the queue is created
    fair, capacity = options.get("fair", False), options.get("capacity")
    redelivery = default_redelivery(options)
    if is_reply_queue(name):  # before it exists: other clients delete those that nobody has open
        store.reply_queues.add(name)
    session = store.session(name, Settings(redelivery=redelivery, capacity=capacity, fair=fair))
    if policy is not None and dead_name is not None:
        dead = store.session(dead_name)
        store.set_dead_letters(session, dead, policy.max_deliveries)
    return session


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
        self._run = cast("Any", call)  # a local verb is a plain callable

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
