"""Signals of a worker: the first drains it, the second releases running messages and exits.

Python calls signal handlers only when the main thread wakes up. So a thread of its own reads the
wakeup file descriptor, to which the number of a signal is written at once.
"""

from __future__ import annotations

import os
import queue
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from pillarbox.logger import logger
from pillarbox.worker.engine import Worker

_SIGNALS = (signal.SIGTERM, signal.SIGINT)
# `timeout` and systemd signal a process and then its whole group; that counts as one signal.
_ECHO_SECONDS = 0.3


@contextmanager
def on_signals(handle: Callable[[int], object]) -> Iterator[None]:
    """Inside the `with` block, SIGTERM and SIGINT only call `handle`, in a thread of its own.

    A repetition of the same signal within a moment is ignored. Outside the main thread this
    does nothing, as Python allows signal handlers there only.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    reading, writing = socket.socketpair()
    writing.setblocking(False)

    def listen() -> None:
        last_heard = dict.fromkeys(map(int, _SIGNALS), -_ECHO_SECONDS)
        while number := reading.recv(1):
            now = time.monotonic()
            if now - last_heard.get(number[0], now) >= _ECHO_SECONDS:
                last_heard[number[0]] = now
                handle(number[0])

    thread = threading.Thread(target=listen, name="pillarbox-signals", daemon=True)
    thread.start()
    before_fd = signal.set_wakeup_fd(writing.fileno(), warn_on_full_buffer=False)
    before = {number: signal.signal(number, lambda *_: None) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(before_fd)
        writing.close()
        thread.join()
        reading.close()


class GracefulStop:
    """Stops a worker on the first request, and exits on the second."""

    def __init__(self, worker: Worker[Any]) -> None:
        self._worker = worker
        self._requests: queue.SimpleQueue[int | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="pillarbox-stops", daemon=True)
        self._thread.start()

    def request(self, number: int) -> None:
        """Request a stop; the exit code is 128 + `number`, the signal."""
        self._requests.put(number)

    def close(self) -> None:
        """The worker has ended."""
        self._requests.put(None)
        self._thread.join()

    def _run(self) -> None:
        if self._requests.get() is None:
            return
        self._worker.stop()
        number = self._requests.get()
        if number is None:
            return
        released = self._worker.abort()
        logger.warning("exit on a second signal", released=released)
        os._exit(128 + number)


def run_until_signalled(worker: Worker[Any]) -> None:
    """Run a worker until it ends or is stopped by a signal."""
    stops = GracefulStop(worker)
    try:
        with on_signals(stops.request):
            worker.run()
    finally:
        stops.close()
