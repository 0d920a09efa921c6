"""The contract's backends on disk, at any level of durability, on a clock the suite moves."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

from pillarbox.log import Durability
from pillarbox.mailbox.durable import AsyncDurableMailbox, DurableMailbox, DurableOptions
from pillarbox.mailbox.durable_store import DurableStore
from pillarbox.testing.contract.memory import MemoryBackend

_QUICK = Path("/dev/shm")  # what is tested is not the disk's speed


class DurableBackend(MemoryBackend):
    """`DurableMailbox`, in a directory of its own."""

    name = "durable"
    mailbox_class: Any = DurableMailbox
    durability: Durability = "fsync"

    def __init__(self) -> None:
        super().__init__()
        self.path = tempfile.mkdtemp(prefix="pillarbox-", dir=_QUICK if _QUICK.exists() else None)
        where = DurableOptions(path=self.path, durability=self.durability, clock=self.clock)
        self._where = dict(where)
        self._keeper = DurableMailbox("keeper", str, **where)
        self.store: DurableStore = self._keeper._verbs.store

    def close(self) -> None:
        super().close()
        shared = self._keeper._verbs._shared
        assert shared is not None, "it is open"
        shared.close()
        shutil.rmtree(self.path)


class AsyncDurableBackend(DurableBackend):
    """`AsyncDurableMailbox`, driven from threads through an event loop of its own."""

    name = "async durable"
    mailbox_class = AsyncDurableMailbox
