"""The queues of the broker's own store, as the SQS actions use them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from pillarbox.broker.catalogue import Catalogue
from pillarbox.broker.local_queue import LocalQueue
from pillarbox.broker.queue import BrokerQueue, Queues
from pillarbox.mailbox.store import Store


class LocalQueues(Queues):
    """The catalogue of this process, which answers at once."""

    def __init__(self, catalogue: Catalogue, store: Store) -> None:
        self._catalogue, self._store = catalogue, store

    async def by_url(
        self, url: str | None, namespace: str, account: str, *, fresh: bool = False
    ) -> BrokerQueue:
        return self._catalogue.by_url(url, namespace, account)

    async def find(self, name: str) -> BrokerQueue | None:
        return self._catalogue.find(name)

    async def names(self) -> Iterable[str]:
        return self._store.sessions

    async def create(self, name: str, notes: dict[str, Any], now_seconds: int) -> BrokerQueue:
        return self._catalogue.create(name, notes, now_seconds)

    async def change(
        self, queue: BrokerQueue, now_seconds: int, *, take_over: bool = False, **changes: Any
    ) -> None:
        assert isinstance(queue, LocalQueue)
        self._catalogue.change(queue, now_seconds, take_over=take_over, **changes)

    async def drop(self, queue: BrokerQueue) -> None:
        assert isinstance(queue, LocalQueue)
        self._catalogue.drop(queue)

    async def dropped_recently(self, name: str) -> bool:
        return self._catalogue.dropped_recently(name)

    async def sources_of(self, queue: BrokerQueue) -> Sequence[str]:
        assert isinstance(queue, LocalQueue)
        return self._catalogue.sources_of(queue)
