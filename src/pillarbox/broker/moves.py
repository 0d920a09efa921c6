"""Message move tasks: redrive dead letters to their source queues, or to another queue.

Each step moves a few messages and confirms them before the next. A task of the broker's own store
is stored with its source queue, so it resumes after a restart. `shared_moves` has the tasks of a
shared store.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec
from msgspec import Struct

from pillarbox.broker.errors import KINDS, SqsError, invalid
from pillarbox.core.errors import MailboxError
from pillarbox.core.limits import SECOND_NS
from pillarbox.log import LogError
from pillarbox.logger import logger
from pillarbox.mailbox.queue_steps import SLICE

if TYPE_CHECKING:
    from pillarbox.broker.queue import BrokerQueue
    from pillarbox.broker.server import Broker

R = TypeVar("R")

_KEPT_MAX: Final = 10
# A little over a second, so that no second, however it is measured, sees more than the rate.
_PAUSE_NS: Final = SECOND_NS + SECOND_NS // 20
UNFINISHED: Final = ("RUNNING", "CANCELLING")


class MoveTask(Struct):
    """A move task, running or finished."""

    id: str
    source: str
    target: str | None
    rate: int | None
    to_move: int
    started_ms: int
    status: str = "RUNNING"
    moved: int = 0
    failure: str = ""
    key: str = ""  # the key whose rights it has; empty without keys
    owner: str = ""  # the broker that runs it, if several share the store


def task_handle(task_id: str, source_arn: str) -> str:
    """Return the handle by which a task is cancelled."""
    known = {"taskId": task_id, "sourceArn": source_arn}
    return base64.b64encode(msgspec.json.encode(known)).decode()


def read_handle(handle: str) -> tuple[str, str] | None:
    """Return the task's id and the ARN of its source; None for an invalid handle."""
    try:
        known = msgspec.json.decode(base64.b64decode(handle, validate=True))
        return str(known["taskId"]), str(known["sourceArn"])
    except (binascii.Error, ValueError, KeyError, TypeError, RecursionError):
        return None


class Moves(ABC):
    """Runs the tasks of a broker. Subclasses store them."""

    id = ""  # of this broker, as the owner of tasks
    _step_max: int  # messages per step

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._running: dict[str, asyncio.Task[None]] = {}

    @abstractmethod
    async def tasks(self, source: str) -> list[MoveTask]:
        """Return the tasks of a source queue, latest first."""

    @abstractmethod
    async def _change(self, source: str, change: Callable[[list[MoveTask]], R]) -> R:
        """Apply `change` to the tasks of a queue, store them, and return its result."""

    async def start(self, task: MoveTask) -> None:
        """Start a task; raise AccessDenied if its key may not send to the first targets."""
        source = await self._broker.queues.find(task.source)
        if source is not None:
            await self._choose(source, task)
        task.owner = self.id

        def add(tasks: list[MoveTask]) -> None:
            if any(each.status == "RUNNING" for each in tasks):
                raise invalid(
                    "There is already a task running. Only one active task is allowed for a source "
                    "queue arn at a given time."
                )
            tasks.insert(0, task)
            del tasks[_KEPT_MAX:]

        await self._change(task.source, add)
        self._run(task)

    async def cancel(self, source: str, task_id: str) -> MoveTask:
        """Cancel and return a running task; raise if there is none with this id."""

        def stop(tasks: list[MoveTask]) -> MoveTask:
            for task in tasks:
                if task.id == task_id and task.status == "RUNNING":
                    task.status = "CANCELLING"
                    return task
            raise SqsError("ResourceNotFoundException", "Task does not exist.")

        return await self._change(source, stop)

    async def stop(self) -> None:
        """Suspend all tasks; they resume after a restart, or at another broker."""
        running = list(self._running.values())
        for each in running:
            each.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    def _run(self, task: MoveTask) -> None:
        if task.id in self._running:  # `look` has adopted it already
            return
        running = self._broker.loop.create_task(self._move(task))
        self._running[task.id] = running
        running.add_done_callback(lambda _: self._running.pop(task.id, None))

    async def _move(self, task: MoveTask) -> None:
        try:
            try:
                while await self._step(task):
                    await self._pause(task)
            except SqsError as error:
                await self._update(task, status="FAILED", failure=error.kind.code)
        except (MailboxError, LogError, OSError) as error:  # the latter two if the disk failed
            logger.error("a move task was interrupted", source=task.source, error=str(error))
            await self._interrupted(task, error)

    async def _interrupted(self, task: MoveTask, error: Exception) -> None:
        """Mark the task as failed, because the store failed."""
        with suppress(MailboxError, LogError, OSError):  # memory has it, if the disk does not
            await self._update(task, status="FAILED", failure=str(error))

    async def _step(self, task: MoveTask) -> bool:
        """Move the next messages; return False if the task is finished or another broker's."""
        now = find_task(await self.tasks(task.source), task)
        if now is None or now.owner != self.id or now.status not in UNFINISHED:
            return False
        if now.status == "CANCELLING":
            await self._update(task, status="CANCELLED")
            return False
        queues = self._broker.queues
        source = await queues.find(task.source)
        target_gone = task.target is not None and await queues.find(task.target) is None
        if source is None or target_gone:
            gone = KINDS["QueueDoesNotExist"].code
            await self._update(task, status="FAILED", failure=gone)
            return False
        chosen, failure = await self._choose(source, now)
        if not chosen:
            await self._update(task, status="FAILED" if failure else "COMPLETED", failure=failure)
            return False
        moved = await source.redrive(chosen, task.target)  # fewer if consumers took some
        await self._broker.saved()
        if now.moved + moved >= task.to_move:  # finish before the pause of a rate limit
            await self._update(task, moved=moved, status="COMPLETED")
            return False
        await self._update(task, moved=moved)
        return True

    async def _choose(
        self, source: BrokerQueue, task: MoveTask
    ) -> tuple[dict[str, list[str]], str]:
        """Return the messages of the next step by target; if there are none, the failure.

        Raise if the task's key may not send to a target.
        """
        most = min(task.rate or self._step_max, task.to_move - task.moved)  # no newer messages
        waiting = await source.waiting(most) if most > 0 else []
        exists = {task.source: False}  # never move to the source itself
        chosen: dict[str, list[str]] = {}
        for message_id, came_from in waiting:
            target = task.target or came_from
            if target is None:
                continue
            if target not in exists:
                exists[target] = await self._broker.queues.find(target) is not None
            if exists[target]:
                chosen.setdefault(target, []).append(message_id)
        self._broker.rights.check_move(self._broker.access.holder(task.key), chosen)
        if chosen or not waiting:
            return chosen, ""
        deleted = waiting[0][1] not in (None, task.source)
        gone = KINDS["QueueDoesNotExist"].code
        return chosen, gone if deleted else "CouldNotDetermineMessageSource"

    async def _update(
        self, task: MoveTask, *, moved: int = 0, status: str = "", failure: str = ""
    ) -> None:
        def update(tasks: list[MoveTask]) -> None:
            found = find_task(tasks, task)
            if found is not None and found.owner == self.id:
                found.moved += moved
                found.status = status or found.status
                found.failure = failure

        await self._change(task.source, update)

    async def _pause(self, task: MoveTask) -> None:
        if task.rate is None:
            await asyncio.sleep(0)
            return
        clock = self._broker.store.clock
        over = asyncio.Event()
        cancel = clock.call_at(clock.now() + _PAUSE_NS, over.set, self._broker.loop)
        try:
            await over.wait()
        finally:
            cancel()


def find_task(tasks: list[MoveTask], task: MoveTask) -> MoveTask | None:
    return next((each for each in tasks if each.id == task.id), None)


class LocalMoves(Moves):
    """The tasks of the broker's own store, stored in the notes of their source queues."""

    _step_max = SLICE

    def resume(self) -> None:
        """Resume the tasks that were running when the broker stopped."""
        for queue in self._broker.local:
            for task in queue.move_tasks:
                if task.status in UNFINISHED:
                    self._run(task)

    async def tasks(self, source: str) -> list[MoveTask]:
        queue = self._broker.local.find_now(source)
        return queue.move_tasks if queue is not None else []

    async def _change(self, source: str, change: Callable[[list[MoveTask]], R]) -> R:
        tasks = await self.tasks(source)
        before = [task.status for task in tasks]
        answer = change(tasks)
        session = self._broker.store.sessions.get(source)
        if session is not None and before != [task.status for task in tasks]:
            noted = {**session.notes, "moves": msgspec.to_builtins(tasks)}
            self._broker.store.note(session, noted)
        return answer
