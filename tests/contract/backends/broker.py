"""The contract's backends behind a broker: a real one, on a clock that the suite moves."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

from pillarbox.mailbox.broker import AsyncBrokerMailbox, BrokerMailbox
from pillarbox.testing.broker import running_broker
from pillarbox.testing.contract.memory import MemoryBackend

_QUICK = Path("/dev/shm")  # what is tested is not the disk's speed


class BrokerBackend(MemoryBackend):
    """`BrokerMailbox`, on a broker that keeps its queues in memory."""

    name = "broker"
    mailbox_class: Any = BrokerMailbox
    crowd_messages = 100  # each is a round trip

    def __init__(self) -> None:
        super().__init__()
        url = self._resources.enter_context(running_broker(clock=self.clock, **self._storage()))
        self.store = url.broker.store
        self._where = {"url": str(url)}

    def _storage(self) -> dict[str, Any]:
        """What to tell the broker of where its data is."""
        return {}


class DurableBrokerBackend(BrokerBackend):
    """`BrokerMailbox`, on a broker whose queues survive the end of its process."""

    name = "broker, durable (os)"

    def _storage(self) -> dict[str, Any]:
        path = tempfile.mkdtemp(prefix="pillarbox-", dir=_QUICK if _QUICK.exists() else None)
        self._resources.callback(shutil.rmtree, path)
        return {"data": path, "durability": "os"}


class AsyncBrokerBackend(BrokerBackend):
    """`AsyncBrokerMailbox`, driven from threads through an event loop of its own."""

    name = "async broker"
    mailbox_class = AsyncBrokerMailbox


class AsyncDurableBrokerBackend(AsyncBrokerBackend, DurableBrokerBackend):
    """`AsyncBrokerMailbox`, on a broker whose queues survive the end of its process."""

    name = "async broker, durable (os)"
