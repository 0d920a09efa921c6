"""The contract's backends in memory, on a clock that only the suite moves."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

from pillarbox.core.limits import WAIT_SECONDS_MAX
from pillarbox.mailbox.memory import AsyncInMemoryMailbox, InMemoryMailbox
from pillarbox.mailbox.protocol import Mailbox
from pillarbox.mailbox.store import Store
from pillarbox.testing.clock import FakeClock
from pillarbox.testing.contract.backend import MailboxClassBackend


class WatchedClock(FakeClock):
    """A fake clock that tells when somebody begins to wait, so that nobody need poll for it."""

    def __init__(self) -> None:
        super().__init__()
        self._someone_waits = threading.Condition()

    def wait(self, gate: threading.Lock, until: int) -> None:
        self._tell()
        super().wait(gate, until)

    def call_at(
        self, until: int, callback: Callable[[], object], loop: asyncio.AbstractEventLoop
    ) -> Callable[[], object]:
        self._tell()
        return super().call_at(until, callback, loop)

    def wait_until(self, condition: Callable[[], bool], patience_seconds: float) -> bool:
        """Block until this holds; it is looked at whenever someone begins to wait."""
        with self._someone_waits:
            return self._someone_waits.wait_for(condition, patience_seconds)

    def _tell(self) -> None:
        with self._someone_waits:
            self._someone_waits.notify_all()


class MemoryBackend(MailboxClassBackend):
    """`InMemoryMailbox`: it can do everything."""

    name = "memory"
    mailbox_class: Any = InMemoryMailbox

    def __init__(self) -> None:
        self.clock = WatchedClock()
        self.store = Store(self.clock)
        super().__init__(store=self.store)

    def pass_time(self, seconds: float) -> None:
        self.clock.advance(seconds)

    def wait_until_parked(self, mailbox: Mailbox[Any], count: int = 1) -> None:
        waiters = self.store.sessions[mailbox.name].waiters
        parked = self.clock.wait_until(lambda: len(waiters) >= count, self.patience_seconds)
        assert parked, f"{len(waiters)} of {count} receives are parked on {mailbox.name!r}"

    def close(self) -> None:
        self.clock.advance(2 * WAIT_SECONDS_MAX)  # nobody stays parked
        super().close()


class AsyncMemoryBackend(MemoryBackend):
    """`AsyncInMemoryMailbox`, driven from threads through an event loop of its own."""

    name = "async memory"
    mailbox_class = AsyncInMemoryMailbox
