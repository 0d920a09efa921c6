"""A crew of threads for plain handlers: one of those who are free receives for all.

No thread waits for work that another has in hand, and none is idle while a message lies
claimed: whoever takes one rouses the next. Threads are started when there is work for them.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Any

from pillarbox.mailbox.waiters import open_gate
from pillarbox.worker.intake import Intake
from pillarbox.worker.job import Job


class ThreadCrew:
    """Up to `size` threads. `work` must not raise."""

    def __init__(self, size: int, intake: Intake, work: Callable[[Job[Any]], object]) -> None:
        self._size = size
        self._intake = intake
        self._work = work
        self._lock = threading.Lock()
        self._claimed: deque[Job[Any]] = deque()  # claimed, and about to start
        self._parked: list[threading.Lock] = []  # the gates of threads with nothing to do
        self._threads: list[threading.Thread] = []
        self._busy = 0
        self._leading = False  # someone receives for all
        self._rousing = False  # someone is on the way
        self._ending = False  # nothing is claimed any more
        self._receives_left: int | None = None
        self.drained = threading.Event()
        self.error: BaseException | None = None

    @property
    def busy(self) -> int:
        """How many handlers run."""
        return self._busy

    def start(self, receives: int | None) -> None:
        """Begin to work; end after so many receives, if that is given."""
        with self._lock:
            self._receives_left = receives
            if receives == 0:
                self._end()
            else:
                self._rouse()

    def stop(self) -> None:
        """Claim nothing more; `drained` is set when the last handler has ended."""
        with self._lock:
            unstarted = list(self._claimed)
            self._claimed.clear()
            self._end()
        if unstarted:
            self._intake.give_back(unstarted)

    def leave(self) -> None:
        """After it was drained: nothing to end. A receive may still be parked."""

    def join(self) -> None:
        """Wait for the thread of a receive that was parked and is woken now."""
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join()

    def _run(self) -> None:
        gate = threading.Lock()
        gate.acquire()
        roused = True
        job: Job[Any] | None = None
        while True:
            with self._lock:
                if roused:
                    self._rousing = roused = False
                if job is not None:
                    self._busy -= 1
                job, free = None, 0
                if self._claimed:
                    self._busy += 1
                    job = self._claimed.popleft()
                    self._rouse()
                elif self._ending:
                    self._check_drained()
                    return
                elif self._leading:
                    self._parked.append(gate)
                else:
                    self._leading = True
                    free = self._size - self._busy
            if job is not None:
                self._work(job)
            elif free:
                self._lead(free)
            else:
                gate.acquire()
                roused = True

    def _lead(self, free: int) -> None:
        """Receive for all who are free."""
        jobs: list[Job[Any]] = []
        error: BaseException | None = None
        try:
            jobs = self._intake.claim(free)
        except BaseException as failure:  # noqa: BLE001 - it is raised where the worker is run
            error = failure
        with self._lock:
            self._leading = False
            too_late = self._ending
            if not too_late:
                self._claimed.extend(jobs)
            if self._receives_left is not None:
                self._receives_left -= 1
            if error is not None or self._receives_left == 0:
                self.error = self.error or error
                self._end()
        if jobs and too_late:
            self._intake.give_back(jobs)

    def _rouse(self) -> None:
        """One more, if there is something to do: to start a message, or to receive."""
        if self._rousing or (self._leading and not self._claimed):
            return
        if self._parked:
            self._rousing = True
            open_gate(self._parked.pop())
        elif len(self._threads) < self._size:
            self._rousing = True
            name = f"pillarbox-worker-{len(self._threads) + 1}"
            thread = threading.Thread(target=self._run, name=name, daemon=True)
            self._threads.append(thread)
            thread.start()

    def _end(self) -> None:
        self._ending = True
        self._rouse()  # what is claimed is still to be done
        if not self._claimed:
            self._dismiss()
        self._check_drained()

    def _check_drained(self) -> None:
        if self._ending and not self._claimed and not self._busy:
            self._dismiss()
            self.drained.set()

    def _dismiss(self) -> None:
        for gate in self._parked:
            open_gate(gate)
        self._parked.clear()
