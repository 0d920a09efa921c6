"""Message move tasks: dead letters go back where they came from, or elsewhere, bit by bit.

Each step moves a few messages and confirms them before the next. A task of the broker's own store
is noted with its source queue, so one that was running when the broker stopped goes on after a
restart. Those of a shared store are in `shared_moves`.
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
UNFINISHED: Final = ("RUNNING", "CANCELLING")


class MoveTask(Struct):
    """One task, running or over."""

    id: str
    source: str
    target: str | None
    rate: int | None
    to_move: int
    started_ms: int
    status: str = "RUNNING"
    moved: int = 0
    failure: str = ""
    key: str = ""  # whose rights it has; empty for everyone's
    owner: str = ""  # which of the brokers that share a store runs it


def task_handle(task_id: str, source_arn: str) -> str:
    """What a task is cancelled by."""
    known = {"taskId": task_id, "sourceArn": source_arn}
    return base64.b64encode(msgspec.json.encode(known)).decode()


def read_handle(handle: str) -> tuple[str, str] | None:
    """The task's id and the ARN of its source; None for a handle that is not one of ours."""
    try:
        known = msgspec.json.decode(base64.b64decode(handle, validate=True))
        return str(known["taskId"]), str(known["sourceArn"])
    except (binascii.Error, ValueError, KeyError, TypeError, RecursionError):
        return None


class Moves(ABC):
    """The tasks of a broker. Where they are kept is for its subclasses to say."""

    id = ""  # that of this broker, as the owner of tasks

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._running: dict[str, asyncio.Task[None]] = {}

    @abstractmethod
    async def tasks(self, source: str) -> list[MoveTask]:
        """The latest first."""

    @abstractmethod
    async def _change(self, source: str, change: Callable[[list[MoveTask]], R]) -> R:
        """What `change` answers, once the tasks of this queue are kept as it left them."""

    @property
    @abstractmethod
    def _step_max(self) -> int:
        """How many messages one step moves."""

    async def start(self, task: MoveTask) -> None:
        """Raises AccessDenied if the first messages may not go where they came from."""
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
        """The task, which moves nothing more; an error if none like this is running."""

        def stop(tasks: list[MoveTask]) -> MoveTask:
            for task in tasks:
                if task.id == task_id and task.status == "RUNNING":
                    task.status = "CANCELLING"
                    return task
            raise SqsError("ResourceNotFoundException", "Task does not exist.")

        return await self._change(source, stop)

    async def stop(self) -> None:
        """Let the tasks rest; they go on when the broker starts again, or at another one."""
        running = list(self._running.values())
        for each in running:
            each.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    def _run(self, task: MoveTask) -> None:
        if task.id in self._running:  # a look was quicker than `start`
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
        """The store could not do a step: the task is over."""
        with suppress(MailboxError, LogError, OSError):  # it is known here, if not on disk
            await self._update(task, status="FAILED", failure=str(error))

    async def _step(self, task: MoveTask) -> bool:
        """Move a few; False if the task is over, or another broker's."""
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
        moved = await source.redrive(chosen, task.target)  # perhaps none: others may take them
        await self._broker.saved()
        if now.moved + moved >= task.to_move:  # at once, not after the pause of a slow task
            await self._update(task, moved=moved, status="COMPLETED")
            return False
        await self._update(task, moved=moved)
        return True

    async def _choose(
        self, source: BrokerQueue, task: MoveTask
    ) -> tuple[dict[str, list[str]], str]:
        """The messages of the next step by where they go; if none can be moved, why not.

        Raises if the key of the task may not send there.
        """
        most = min(task.rate or self._step_max, task.to_move - task.moved)  # not what came later
        waiting = await source.waiting(most) if most > 0 else []
        exists = {task.source: False}  # which does not go to itself
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
        cancel = clock.call_at(clock.now() + SECOND_NS, over.set, self._broker.loop)
        try:
            await over.wait()
        finally:
            cancel()


def find_task(tasks: list[MoveTask], task: MoveTask) -> MoveTask | None:
    return next((each for each in tasks if each.id == task.id), None)


class LocalMoves(Moves):
    """The tasks of the broker's own store, noted with their queues when one starts or ends."""

    @property
    def _step_max(self) -> int:
        return SLICE

    def resume(self) -> None:
        """Go on with the tasks that were running when the broker stopped."""
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
