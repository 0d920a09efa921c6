"""What every mailbox must do, as tests that any backend runs.

    class TestMine(MailboxContract):
        def make_backend(self) -> Backend:
            return MyBackend()

A backend says what it can't do (`Backend.cannot`), each with a reason; the cases about it are
then reported as skipped with that reason. Everything else must hold. Needs pytest.
"""

from pillarbox.testing.contract.backend import (
    Backend,
    Bounds,
    Capability,
    MailboxClassBackend,
    needs,
)
from pillarbox.testing.contract.memory import AsyncMemoryBackend, MemoryBackend
from pillarbox.testing.contract.suite import MailboxContract

__all__ = [
    "AsyncMemoryBackend",
    "Backend",
    "Bounds",
    "Capability",
    "MailboxClassBackend",
    "MailboxContract",
    "MemoryBackend",
    "needs",
]
