"""A crew of asyncio tasks for coroutine handlers: one event loop, and one thread that receives."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any

from pillarbox.mailbox.waiters import open_gate
from pillarbox.worker.intake import Intake
from pillarbox.worker.job import Job


class TaskCrew:
    """Up to `size` tasks at once. `work` must not raise."""

    def __init__(
        self, size: int, intake: Intake, work: Callable[[Job[Any]], Coroutine[Any, Any, object]]
    ) -> None:
        self._size = size
        self._intake = intake
        self._work = work
        self._lock = threading.Lock()
        self._busy = 0
        self._full = False  # the receiving thread waits for a free place
        self._ending = False
        self._gate = threading.Lock()
        self._gate.acquire()
        self._receives_left: int | None = None
        self._tasks: set[asyncio.Task[object]] = set()
        self._threads: list[threading.Thread] = []
        self.drained = threading.Event()
        self.error: BaseException | None = None

    @property
    def busy(self) -> int:
        """How many handlers run."""
        return self._busy

    def start(self, receives: int | None) -> None:
        """Begin to work; end after so many receives, if that is given."""
        self._receives_left = receives
        self._loop = asyncio.new_event_loop()
        for target in (self._run_loop, self._receive):
            name = f"pillarbox-worker{target.__name__}"
            self._threads.append(threading.Thread(target=target, name=name, daemon=True))
            self._threads[-1].start()

    def stop(self) -> None:
        """Claim nothing more; `drained` is set when the last handler has ended."""
        with self._lock:
            self._end()

    def leave(self) -> None:
        """After it was drained: end the event loop. A receive may still be parked."""
        if self._threads:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._threads[0].join()

    def join(self) -> None:
        """Wait for the thread of a receive that was parked and is woken now."""
        for thread in self._threads:
            thread.join()

    def _run_loop(self) -> None:
        try:
            self._loop.run_forever()
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            self._loop.run_until_complete(self._loop.shutdown_default_executor())
        finally:
            self._loop.close()

    def _receive(self) -> None:
        while True:
            with self._lock:
                if self._ending or self._receives_left == 0:
                    self._end()
                    return
                free = self._size - self._busy
                self._full = not free
            if not free:
                self._gate.acquire()
                continue
            self._claim(free)

    def _claim(self, free: int) -> None:
        jobs: list[Job[Any]] = []
        error: BaseException | None = None
        try:
            jobs = self._intake.claim(free)
        except BaseException as failure:  # noqa: BLE001 - it is raised where the worker is run
            error = failure
        with self._lock:
            too_late = self._ending
            if not too_late:
                self._busy += len(jobs)
            if self._receives_left is not None:
                self._receives_left -= 1
            if error is not None:
                self.error = self.error or error
                self._end()
        if not jobs:
            return
        if too_late:
            self._intake.give_back(jobs)
        else:
            self._loop.call_soon_threadsafe(self._begin, jobs)

    def _begin(self, jobs: list[Job[Any]]) -> None:
        for job in jobs:
            task = self._loop.create_task(self._work(job))
            # The keeper's thread asks; the task is told where it runs.
            job.on_lost = lambda task=task: self._loop.call_soon_threadsafe(task.cancel)
            self._tasks.add(task)
            task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[object]) -> None:
        self._tasks.discard(task)
        with self._lock:
            self._busy -= 1
            if self._full:
                self._full = False
                open_gate(self._gate)
            self._check_drained()

    def _end(self) -> None:
        self._ending = True
        open_gate(self._gate)
        self._check_drained()

    def _check_drained(self) -> None:
        if self._ending and not self._busy:
            self.drained.set()
