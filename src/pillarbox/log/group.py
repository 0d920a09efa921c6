"""A group of records in one frame, and how its waiters are notified.

Even if a signal handler raises in here, every waiter is notified.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from contextlib import suppress

from pillarbox.log.segment_writer import SegmentWriter

_logger = logging.getLogger("pillarbox.log")


class Group:
    """The records of one frame, with the waiters, callbacks and futures for it."""

    def __init__(self, first_index: int, segment: SegmentWriter | None) -> None:
        self.first_index = first_index
        self.segment = segment
        self.records: list[bytes] = []
        self.payload_bytes = 0
        self.done = False
        self.error: Exception | None = None
        self.waiters: list[threading.Lock] = []
        self.callbacks: list[Callable[[], object]] = []
        self.futures: dict[asyncio.AbstractEventLoop, list[asyncio.Future[None]]] = {}

    def decided(self) -> bool:
        """`done`, without the type narrowing of an earlier check."""
        return self.done

    @property
    def wanted(self) -> bool:
        return bool(self.waiters or self.callbacks or self.futures)


def nothing() -> None:
    """Do nothing: a callback that only marks the group as awaited."""


def remove_waiter(group: Group, parked: threading.Lock) -> bool:
    """Remove a waiter; False if it was woken meanwhile, and must act on that."""
    try:
        group.waiters.remove(parked)
    except ValueError:
        return False
    return True


def wake_one(group: Group) -> None:
    """Wake one waiter of a group, which wakes the next if the group is done."""
    try:
        parked = group.waiters[-1]
        del group.waiters[-1]
    except IndexError:
        return
    with suppress(RuntimeError):  # woken twice
        parked.release()


def notify_all(groups: list[Group]) -> None:
    """Notify all waiters of groups that are done; once more if a signal handler raised."""
    try:
        for group in groups:
            _notify(group)
    except BaseException:
        for group in groups:
            _notify(group)
        raise


def _notify(group: Group) -> None:
    wake_one(group)
    wake_one(group)
    while group.callbacks:
        callback = group.callbacks[0]
        del group.callbacks[0]
        try:
            callback()
        except Exception:
            _logger.exception("a done-callback of the log failed")
    for loop, futures in group.futures.items():
        try:
            loop.call_soon_threadsafe(_resolve, futures)
        except RuntimeError:  # the loop was closed meanwhile
            _logger.debug("an event loop closed before its records were confirmed")


def _resolve(futures: list[asyncio.Future[None]]) -> None:
    for future in futures:
        if not future.done():
            future.set_result(None)
