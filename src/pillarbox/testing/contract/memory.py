"""The in-memory backends of the contract suite, on a fake clock."""

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
    """A fake clock that notifies when a wait starts, so that tests need not poll."""

    def __init__(self) -> None:
        super().__init__()
        self._wait_started = threading.Condition()

    def wait(self, gate: threading.Lock, until: int) -> None:
        self._notify()
        super().wait(gate, until)

    def call_at(
        self, until: int, callback: Callable[[], object], loop: asyncio.AbstractEventLoop
    ) -> Callable[[], object]:
        self._notify()
        return super().call_at(until, callback, loop)

    def wait_until(self, condition: Callable[[], bool], patience_seconds: float) -> bool:
        """Block until the condition is true; it is checked whenever a wait starts."""
        with self._wait_started:
            return self._wait_started.wait_for(condition, patience_seconds)

    def _notify(self) -> None:
        with self._wait_started:
            self._wait_started.notify_all()


class MemoryBackend(MailboxClassBackend):
    """`InMemoryMailbox`, which has every capability."""

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
        self.clock.advance(2 * WAIT_SECONDS_MAX)  # end all parked receives
        super().close()


class AsyncMemoryBackend(MemoryBackend):
    """`AsyncInMemoryMailbox`, called from threads through a dedicated event loop."""

    name = "async memory"
    mailbox_class = AsyncInMemoryMailbox
