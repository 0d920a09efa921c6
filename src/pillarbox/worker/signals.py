"""A worker under signals: the first drains it, the second gives back what runs and exits.

The system may hand a signal to any thread, and Python would then wait for the main thread to wake
before it calls a handler. So a thread listens where the signal's number is written at once.
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
# `timeout` and systemd signal a process and then its whole group: that is one wish, told twice.
_ECHO_SECONDS = 0.3


@contextmanager
def listening(heard: Callable[[int], object]) -> Iterator[None]:
    """Meanwhile SIGTERM and SIGINT do nothing but call `heard`, in a thread of its own.

    The same one again within a moment is an echo, and not heard.
    Only the main thread may ask for this; in any other nothing is changed.
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
                heard(number[0])

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


class Stops:
    """Asks a worker to stop; the second time is the last."""

    def __init__(self, worker: Worker[Any]) -> None:
        self._worker = worker
        self._asks: queue.SimpleQueue[int | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._obey, name="pillarbox-stops", daemon=True)
        self._thread.start()

    def ask(self, number: int) -> None:
        """Ask once more; `number` is the signal that did, and becomes the exit code."""
        self._asks.put(number)

    def end(self) -> None:
        """The worker has ended by itself."""
        self._asks.put(None)
        self._thread.join()

    def _obey(self) -> None:
        if self._asks.get() is None:
            return
        self._worker.stop()
        number = self._asks.get()
        if number is None:
            return
        given_back = self._worker.abort()
        logger.warning("exit on a second signal", given_back=given_back)
        os._exit(128 + number)


def run_until_signalled(worker: Worker[Any]) -> None:
    """`worker.run()`, and under signals if this is the main thread."""
    stops = Stops(worker)
    try:
        with listening(stops.ask):
            worker.run()
    finally:
        stops.end()
