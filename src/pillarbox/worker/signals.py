"""Signal handling of a worker: the first drains it, the second releases messages and exits.

Python calls signal handlers only when the main thread wakes up. So a dedicated thread reads the
wakeup file descriptor, to which the signal number is written immediately.
"""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import Any

from pillarbox.logger import logger
from pillarbox.worker.engine import Worker

_SIGNALS = (signal.SIGTERM, signal.SIGINT)
# `timeout` and systemd signal a process and then its process group; count that as one signal.
_ECHO_SECONDS = 0.3


@contextmanager
def on_signals(handle: Callable[[int], object]) -> Iterator[None]:
    """Inside the `with` block, SIGTERM and SIGINT only call `handle`, in a dedicated thread.

    The same signal is ignored if repeated within 0.3 seconds. Does nothing outside the main
    thread, where Python does not allow signal handlers.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    reading, writing = socket.socketpair()
    writing.setblocking(False)

    def listen() -> None:
        received_at = dict.fromkeys(map(int, _SIGNALS), -_ECHO_SECONDS)
        while number := reading.recv(1):
            now = time.monotonic()
            if now - received_at.get(number[0], now) >= _ECHO_SECONDS:
                received_at[number[0]] = now
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


def run_until_signalled(*workers: Worker[Any]) -> None:
    """Run workers until they end or a signal stops them; if one fails, stop the others."""
    stopping = False

    def stop_or_exit(number: int) -> None:
        nonlocal stopping
        if not stopping:
            stopping = True
            for worker in workers:
                worker.stop()
            return
        released = sum(worker.abort() for worker in workers)
        logger.warning("exit on a second signal", released=released)
        os._exit(128 + number)

    with on_signals(stop_or_exit), ThreadPoolExecutor(len(workers)) as threads:
        runs = [threads.submit(worker.run) for worker in workers]
        wait(runs, return_when=FIRST_EXCEPTION)
        for worker in workers:
            worker.stop()
    for run in runs:
        run.result()
