"""Extends leases while handlers run: one thread for all messages that a process holds.

A lease is extended by its timeout after a third of it has passed, so two renewals may fail before
it expires. It is never shortened. When a lease is lost, `lost` is set and `on_lost` is called. A
frozen process extends nothing, so its messages are delivered again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Generic, TypeVar

from pillarbox.clock import Clock, SystemClock
from pillarbox.core.errors import MailboxError
from pillarbox.core.limits import SECOND_NS
from pillarbox.core.queue import NEVER
from pillarbox.logger import logger
from pillarbox.mailbox.message import Message
from pillarbox.mailbox.protocol import Mailbox
from pillarbox.mailbox.waiters import closed_gate, open_gate

T = TypeVar("T")

_RENEWALS = 3  # per lease
_RETRIES = 10  # per lease while the server can't be reached


class LeaseTerms(Generic[T]):
    """The mailbox of messages, their visibility timeout, and the longest time to hold them."""

    __slots__ = ("limit_ns", "mailbox", "span_ns", "timeout")

    def __init__(self, mailbox: Mailbox[T], timeout: float, limit: float | None = None) -> None:
        self.mailbox = mailbox
        self.timeout = timeout
        self.span_ns = round(timeout * SECOND_NS)
        self.limit_ns = NEVER if limit is None else round(limit * SECOND_NS)


class HeldMessage(Generic[T]):
    """A message that is being handled, and the state of its lease."""

    __slots__ = (
        "lost",
        "message",
        "on_lost",
        "renew_at",
        "settled",
        "started_at",
        "terms",
        "until",
    )

    def __init__(self, message: Message[T], terms: LeaseTerms[T], now: int) -> None:
        self.message = message
        self.terms = terms
        self.lost: str | None = None  # the reason, once the lease is lost
        self.on_lost: Callable[[], object] | None = None
        self.settled = False  # the handler is done
        self.started_at = now
        self.until = now + terms.span_ns
        self.renew_at = now + terms.span_ns // _RENEWALS

    @property
    def wake_at(self) -> int:
        """When the lease has to be extended or given up."""
        return min(self.renew_at, self.started_at + self.terms.limit_ns)


class LeaseKeeper:
    """Extends the leases of held messages until they are dropped.

    Examples:
        >>> from pillarbox import InMemoryMailbox
        >>> keeper, box = LeaseKeeper(), InMemoryMailbox("slow", str)
        >>> _ = box.send("a long story")
        >>> for message in box.receive(visibility_timeout=30):
        ...     with keeper.holding(box, message, 30) as held:
        ...         print(message.body, held.lost)
        a long story None
        >>> keeper.close()
    """

    def __init__(
        self,
        clock: Clock | None = None,
        on_lost: Callable[[HeldMessage[Any]], object] | None = None,
    ) -> None:
        self._on_lost = on_lost
        self._clock: Clock = clock or SystemClock()
        self.now = self._clock.now
        self._lock = threading.Lock()
        self._held: dict[int, HeldMessage[Any]] = {}
        self._wake_at = NEVER
        self._gate = closed_gate()
        self._thread: threading.Thread | None = None
        self._closed = False

    @contextmanager
    def holding(
        self, mailbox: Mailbox[T], message: Message[T], timeout: float
    ) -> Iterator[HeldMessage[T]]:
        """Hold a message that was just received with this visibility timeout."""
        held = HeldMessage(message, LeaseTerms(mailbox, timeout), self.now())
        self.hold([held])
        try:
            yield held
        finally:
            self.drop([held])

    def hold(self, helds: Iterable[HeldMessage[Any]]) -> None:
        """Extend the leases of these messages from now on."""
        with self._lock:
            earliest = NEVER
            for held in helds:
                self._held[id(held)] = held
                earliest = min(earliest, held.wake_at)
            if earliest < self._wake_at:  # rare: the thread checks all messages when it wakes
                self._wake_at = earliest
                self._wake()

    def drop(self, helds: Iterable[HeldMessage[Any]]) -> None:
        """Stop extending the leases of these messages."""
        with self._lock:
            for held in helds:
                self._held.pop(id(held), None)

    def extend(self, held: HeldMessage[Any], timeout: float) -> bool:
        """Extend a lease to at least `timeout` seconds from now; return False if it is lost."""
        span = round(timeout * SECOND_NS)
        now = self.now()
        if held.lost is not None or now + span <= held.until:
            return held.lost is None
        if not held.message.extend_visibility(timeout):
            self._lose(held, "it expired before it could be extended")
            return False
        with self._lock:
            held.until = max(held.until, now + span)
        return True

    def held(self) -> list[HeldMessage[Any]]:
        """Return the messages that are held now."""
        with self._lock:
            return list(self._held.values())

    def close(self) -> None:
        """Stop extending leases."""
        with self._lock:
            self._closed = True
            self._held.clear()
            thread, self._thread = self._thread, None
            open_gate(self._gate)
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    def _wake(self) -> None:
        """Start the thread, or wake it to read `_wake_at`. Needs the lock."""
        if self._closed:
            return
        if self._thread is None:
            self._thread = threading.Thread(
                target=self._run, name="pillarbox-lease-keeper", daemon=True
            )
            self._thread.start()
        else:
            open_gate(self._gate)

    def _run(self) -> None:
        while not self._closed:
            if self.now() < self._wake_at:
                self._clock.wait(self._gate, self._wake_at)
            if self.now() >= self._wake_at:
                self._renew()

    def _renew(self) -> None:
        """Extend the leases that are due, one batch per mailbox, and compute the next time."""
        now = self.now()
        due: dict[int, list[HeldMessage[Any]]] = {}
        over: list[HeldMessage[Any]] = []
        with self._lock:
            for held in self._held.values():
                if now - held.started_at >= held.terms.limit_ns:
                    over.append(held)
                elif now >= held.renew_at:
                    due.setdefault(id(held.terms), []).append(held)
        for held in over:
            self._lose(held, "the time limit of the message was exceeded")
        for batch in due.values():
            self._extend_batch(batch, batch[0].terms, now)
        with self._lock:
            self._wake_at = min((held.wake_at for held in self._held.values()), default=NEVER)

    def _extend_batch(
        self, batch: list[HeldMessage[Any]], terms: LeaseTerms[Any], now: int
    ) -> None:
        until = now + terms.span_ns
        for held in batch:
            held.renew_at = now + terms.span_ns // _RENEWALS
        # Skip leases that the handler has extended for longer.
        batch = [held for held in batch if held.until < until]
        if not batch:
            return
        try:
            messages = [held.message for held in batch]
            answers = terms.mailbox.extend_visibility_many(messages, terms.timeout)
        except Exception as error:  # noqa: BLE001 - the thread must survive for the other leases
            self._retry(batch, terms, error)
            return
        for held, kept in zip(batch, answers, strict=True):
            if kept:
                held.until = max(held.until, until)
            else:
                self._lose(held, "it expired before it could be extended")

    def _retry(
        self, batch: list[HeldMessage[Any]], terms: LeaseTerms[Any], error: Exception
    ) -> None:
        now = self.now()
        level = "warning" if isinstance(error, MailboxError) else "exception"
        getattr(logger, level)(
            "leases not extended", mailbox=terms.mailbox.name, count=len(batch), error=str(error)
        )
        for held in batch:
            if now >= held.until:
                self._lose(held, f"it could not be extended: {error}")
            else:
                held.renew_at = min(now + terms.span_ns // _RETRIES, held.until)

    def _lose(self, held: HeldMessage[Any], why: str) -> None:
        with self._lock:
            if self._held.pop(id(held), None) is None or held.settled:
                return  # already settled
            held.lost = why
        logger.warning(
            "lease lost: another consumer may receive the message",
            mailbox=held.terms.mailbox.name,
            message_id=held.message.id,
            why=why,
        )
        try:
            if held.on_lost is not None:
                held.on_lost()
            if self._on_lost is not None:
                self._on_lost(held)
        except Exception:  # noqa: BLE001 - as above
            logger.exception("on_lost failed", mailbox=held.terms.mailbox.name)
