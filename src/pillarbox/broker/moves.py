"""Message move tasks: dead letters go back where they came from, or elsewhere, bit by bit.

A task is noted with its source queue, so one that was running when the broker stopped goes
on after a restart. Each step moves a few messages and confirms them before the next.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct

from pillarbox.broker.errors import KINDS, SqsError
from pillarbox.core.errors import MailboxError
from pillarbox.core.limits import SECOND_NS
from pillarbox.log import LogError
from pillarbox.logger import logger
from pillarbox.mailbox.queue_steps import SLICE

if TYPE_CHECKING:
    from pillarbox.broker.server import Broker

_KEPT_MAX: Final = 10


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


def task_handle(task_id: str, source_arn: str) -> str:
    """What a task is cancelled by."""
    known = {"taskId": task_id, "sourceArn": source_arn}
    return base64.b64encode(msgspec.json.encode(known)).decode()


def read_handle(handle: str) -> tuple[str, str] | None:
    """The task's id and the name of its source; None for a handle that is not one of ours."""
    try:
        known = msgspec.json.decode(base64.b64decode(handle, validate=True))
        return str(known["taskId"]), str(known["sourceArn"]).rpartition(":")[2]
    except (binascii.Error, ValueError, KeyError, TypeError, RecursionError):
        return None


class Moves:
    """The tasks of a broker."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def of(self, source: str) -> list[MoveTask]:
        """The latest first."""
        return self._known.setdefault(source, [])

    def resume(self) -> None:
        """Read all tasks; those that were running go on."""
        self._known: dict[str, list[MoveTask]] = {}
        for name, session in self._broker.store.sessions.items():
            noted: list[Any] = session.notes.get("moves", [])
            self._known[name] = msgspec.convert(noted, list[MoveTask])
            for task in self._known[name]:
                if task.status == "RUNNING":
                    self._run(task)

    def running(self, source: str) -> MoveTask | None:
        return next((task for task in self.of(source) if task.status == "RUNNING"), None)

    def start(self, task: MoveTask) -> None:
        """Raises AccessDenied if the first messages may not go where they came from."""
        self._next(task)
        known = self.of(task.source)
        known.insert(0, task)
        del known[_KEPT_MAX:]
        self._note(task.source)
        self._run(task)

    def cancel(self, task: MoveTask) -> None:
        task.status = "CANCELLING"

    async def stop(self) -> None:
        """Let the tasks rest; they go on when the broker starts again."""
        tasks = list(self._tasks.values())
        for each in tasks:
            each.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _run(self, task: MoveTask) -> None:
        running = self._broker.loop.create_task(self._move(task))
        self._tasks[task.id] = running
        running.add_done_callback(lambda _: self._tasks.pop(task.id, None))

    async def _move(self, task: MoveTask) -> None:
        try:
            while task.status == "RUNNING" and await self._step(task):
                await self._pause(task)
        except (MailboxError, LogError, OSError) as error:  # the latter if the disk failed
            logger.error("a move task failed", source=task.source, error=str(error))
            task.status, task.failure = "FAILED", str(error)
        except SqsError as error:
            task.status, task.failure = "FAILED", error.kind.code
        if task.status == "CANCELLING":
            task.status = "CANCELLED"
        elif task.status == "RUNNING":
            task.status = "COMPLETED"
        if task.source in self._broker.store.sessions:
            self._note(task.source)

    async def _step(self, task: MoveTask) -> bool:
        """Move a few; False if there is nothing left that can be moved."""
        sessions = self._broker.store.sessions
        source = sessions.get(task.source)
        if source is None:
            return False
        if task.target is not None and task.target not in sessions:
            task.status, task.failure = "FAILED", KINDS["QueueDoesNotExist"].code
            return False
        chosen = self._next(task).items()
        moved = sum(source.redrive(keys, sessions[name]) for name, keys in chosen)
        task.moved += moved
        await self._broker.saved()
        return moved > 0

    def _next(self, task: MoveTask) -> dict[str, set[int]]:
        """The messages of the next step by where they go; raises if its key may not send there."""
        sessions = self._broker.store.sessions
        by_target: dict[str, set[int]] = {}
        most = min(task.rate or SLICE, task.to_move - task.moved)  # not what came later
        for record, _ in sessions[task.source].look("ready", most) if most > 0 else ():
            death = record.extra.death if record.extra is not None else None
            name = task.target or (death.source if death is not None else None)
            if name is not None and name in sessions and name != task.source:
                by_target.setdefault(name, set()).add(record.key)
        self._broker.rights.check_move(self._broker.access.holder(task.key), by_target)
        return by_target

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

    def _note(self, source: str) -> None:
        session = self._broker.store.sessions[source]
        tasks = msgspec.to_builtins(self.of(source))
        self._broker.store.note(session, {**session.notes, "moves": tasks})
