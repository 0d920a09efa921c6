"""Message move tasks of a store that several brokers serve.

All tasks are one document in the store, changed by compare and set. The owner of a task is the
broker that runs it; when that broker dies, another takes over. A step moves messages atomically
in the store, so nothing is lost or duplicated, even if two brokers run a task for a moment.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec

from pillarbox.broker.moves import UNFINISHED, Moves, MoveTask, find_task

if TYPE_CHECKING:
    from pillarbox.broker.server import Broker
    from pillarbox.broker.shared_queues import SharedQueues

R = TypeVar("R")
Tasks = dict[str, list[MoveTask]]  # by source, the latest first

_DOCUMENT: Final = "moves"
_SOURCES_MAX: Final = 1_000  # source queues whose tasks are kept


class SharedMoves(Moves):
    """The tasks of a shared store."""

    _step_max = 100

    def __init__(self, broker: Broker, shared: SharedQueues) -> None:
        super().__init__(broker)
        self._shared = shared
        self.id = shared.heartbeat.id

    async def tasks(self, source: str) -> list[MoveTask]:
        return _decode(await self._read()).get(source, [])

    async def forget(self, source: str) -> None:
        """Forget the tasks of a deleted queue."""
        if await self.tasks(source):
            await self._change(source, list.clear)

    async def look(self, alive: set[str]) -> None:
        """Take over the tasks whose brokers are not `alive`."""
        if self._broker.closed:
            return
        for known in _decode(await self._read()).values():
            for task in known:
                ours = task.owner == self.id or task.owner not in alive
                if ours and task.status in UNFINISHED and task.id not in self._running:
                    await self._adopt(task)

    async def _interrupted(self, task: MoveTask, error: Exception) -> None:
        """Keep the task; the next `look` resumes it."""

    async def _adopt(self, task: MoveTask) -> None:
        before = task.owner

        def take(tasks: list[MoveTask]) -> bool:
            found = find_task(tasks, task)
            if found is None or found.owner != before:
                return False  # another broker was first
            found.owner = self.id
            return True

        if await self._change(task.source, take):
            self._run(task)

    async def _read(self) -> str | None:
        return await self._shared.do(self._shared.store.kept(_DOCUMENT))

    async def _change(self, source: str, change: Callable[[list[MoveTask]], R]) -> R:
        while True:
            before = await self._read()
            tasks = _decode(before)
            answer = change(tasks.setdefault(source, []))
            after = msgspec.json.encode(_recent(tasks)).decode()
            if after == before or await self._shared.do(
                self._shared.store.keep_if(_DOCUMENT, before, after)
            ):
                return answer


def _decode(document: str | None) -> Tasks:
    return msgspec.json.decode(document, type=Tasks) if document else {}


def _recent(tasks: Tasks) -> Tasks:
    """Drop the sources whose tasks ended longest ago, if there are too many."""
    known = {source: each for source, each in tasks.items() if each}
    over = [source for source, each in known.items() if each[0].status not in UNFINISHED]
    over.sort(key=lambda source: known[source][0].started_ms)
    for source in over[: max(0, len(known) - _SOURCES_MAX)]:
        del known[source]
    return known
