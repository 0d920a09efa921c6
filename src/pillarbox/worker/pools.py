"""The pools that run handlers: threads for plain functions, asyncio tasks for coroutines.

Both receive only as many messages as they have free slots. Both drain: `on_drained` is called
once, when receiving has stopped and the last handler has ended.
"""

from __future__ import annotations

import asyncio
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from typing import Any

from pillarbox.mailbox.runner import Verb, run_awaiting, run_blocking
from pillarbox.mailbox.waiters import closed_gate, open_gate
from pillarbox.worker.job import Job
from pillarbox.worker.receiver import Receiver


class Pool(ABC):
    """Runs up to `size` handlers at once."""

    def __init__(
        self,
        size: int,
        receiver: Receiver,
        work: Callable[[Job[Any]], Verb[None]],
        on_drained: Callable[[], object],
    ) -> None:
        self._size = size
        self._receiver = receiver
        self._work = work  # must not raise
        self._on_drained = on_drained  # must not block: called with the lock
        self._lock = threading.Lock()
        self.busy = 0  # handlers running
        self._ending = False  # stop receiving
        self._receives_left: int | None = None
        self._threads: list[threading.Thread] = []
        self.drained = False
        self.error: BaseException | None = None

    @abstractmethod
    def start(self, receives: int | None) -> None:
        """Start receiving and running handlers; end after this many receives, if given."""

    @abstractmethod
    def stop(self) -> None:
        """Stop receiving."""

    def shut_down(self) -> None:  # noqa: B027 - threads hold no resources
        """Free resources after draining. A receive may still be waiting."""

    def join(self) -> None:
        """Wait for all threads, after the mailbox was closed to wake a waiting receive."""
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join()

    def _receive_jobs(self, free: int) -> list[Job[Any]]:
        """Receive for up to `free` slots, and add the jobs to the pool."""
        jobs: list[Job[Any]] = []
        error: BaseException | None = None
        with self._receiver.claiming:
            try:
                jobs = self._receiver.receive(free)
            except BaseException as failure:  # noqa: BLE001 - `Worker.run` raises it
                error = failure
            with self._lock:
                too_late = self._ending
                self._add([] if too_late else jobs)
                if self._receives_left is not None:
                    self._receives_left -= 1
                if error is not None or self._receives_left == 0:
                    self.error = self.error or error
                    self._end()
            if jobs and too_late:
                self._receiver.release(jobs)
                return []
        return jobs

    @abstractmethod
    def _add(self, jobs: list[Job[Any]]) -> None:
        """Add received jobs to the pool. Needs the lock."""

    @abstractmethod
    def _end(self) -> None:
        """Stop receiving. Needs the lock."""

    def _set_drained(self) -> None:
        if not self.drained:
            self.drained = True
            self._on_drained()


class ThreadPool(Pool):
    """Runs plain functions in threads, one of which receives for all idle threads.

    No thread is idle while a received message waits: a thread that takes one wakes the next.
    Threads are started when there is work for them.
    """

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._received: deque[Job[Any]] = deque()  # not started yet
        self._parked: list[threading.Lock] = []  # the gates of idle threads
        self._receiving = False  # a thread is receiving for all
        self._waking = False  # a woken thread has not checked for work yet

    def start(self, receives: int | None) -> None:
        with self._lock:
            self._receives_left = receives
            if receives == 0:
                self._end()
            else:
                self._wake()

    def stop(self) -> None:
        with self._lock:
            unstarted = list(self._received)
            self._received.clear()
            self._end()
        if unstarted:
            self._receiver.release(unstarted)

    def _run(self) -> None:
        gate = closed_gate()
        woken = True
        job: Job[Any] | None = None
        while True:
            with self._lock:
                if woken:
                    self._waking = woken = False
                if job is not None:
                    self.busy -= 1
                job, free = None, 0
                if self._received:
                    self.busy += 1
                    job = self._received.popleft()
                    self._wake()
                elif self._ending:
                    self._check_drained()
                    return
                elif self._receiving:
                    self._parked.append(gate)
                else:
                    self._receiving = True
                    free = self._size - self.busy
            if job is not None:
                run_blocking(self._work(job))
            elif free:
                self._receive_jobs(free)
            else:
                gate.acquire()
                woken = True

    def _add(self, jobs: list[Job[Any]]) -> None:
        self._receiving = False
        self._received.extend(jobs)

    def _wake(self) -> None:
        """Wake or start one thread, if there is a message to handle or no thread receives."""
        if self._waking or (self._receiving and not self._received):
            return
        if self._parked:
            self._waking = True
            open_gate(self._parked.pop())
        elif len(self._threads) < self._size:
            self._waking = True
            name = f"pillarbox-worker-{len(self._threads) + 1}"
            thread = threading.Thread(target=self._run, name=name, daemon=True)
            self._threads.append(thread)
            thread.start()

    def _end(self) -> None:
        self._ending = True
        self._wake()  # to handle messages that are received but not started
        if not self._received:
            self._wake_all()
        self._check_drained()

    def _check_drained(self) -> None:
        if self._ending and not self._received and not self.busy:
            self._wake_all()
            self._set_drained()

    def _wake_all(self) -> None:
        for gate in self._parked:
            open_gate(gate)
        self._parked.clear()


class TaskPool(Pool):
    """Runs coroutine functions as tasks of one event loop; another thread receives."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._full = False  # the receiving thread waits for a free slot
        self._gate = closed_gate()
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, receives: int | None) -> None:
        self._receives_left = receives
        self._loop = asyncio.new_event_loop()
        for target in (self._run_loop, self._receive):
            name = f"pillarbox-worker{target.__name__}"
            self._threads.append(threading.Thread(target=target, name=name, daemon=True))
            self._threads[-1].start()

    def stop(self) -> None:
        with self._lock:
            self._end()

    def shut_down(self) -> None:
        if self._threads:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._threads[0].join()

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
                free = self._size - self.busy
                self._full = not free
            if not free:
                self._gate.acquire()
            elif jobs := self._receive_jobs(free):
                self._loop.call_soon_threadsafe(self._start_tasks, jobs)

    def _add(self, jobs: list[Job[Any]]) -> None:
        self.busy += len(jobs)

    def _start_tasks(self, jobs: list[Job[Any]]) -> None:
        for job in jobs:
            task = self._loop.create_task(run_awaiting(self._work(job)))
            # Called in the lease keeper's thread.
            job.on_lost = lambda task=task: self._loop.call_soon_threadsafe(task.cancel)
            if job.lost is not None:  # already
                job.on_lost()
            self._tasks.add(task)
            task.add_done_callback(self._task_done)

    def _task_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        with self._lock:
            self.busy -= 1
            if self._full:
                self._full = False
                open_gate(self._gate)
            self._check_drained()

    def _end(self) -> None:
        self._ending = True
        open_gate(self._gate)
        self._check_drained()

    def _check_drained(self) -> None:
        if self._ending and not self.busy:
            self._set_drained()
