"""The contract suite: tests that every backend must pass.

    class TestMine(MailboxContract):
        def make_backend(self) -> Backend:
            return MyBackend()

A backend lists what it can't do (`Backend.cannot`), each with a reason. Tests that need it are
skipped and show the reason; all others must pass. Needs pytest.
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
