"""A group of records that share a frame and a fate, and how its waiters learn of that.

A signal handler may raise anywhere in here: nobody is forgotten because of that.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from contextlib import suppress

from pillarbox.log.segment import SegmentWriter

_logger = logging.getLogger("pillarbox.log")


class Group:
    """The records of one frame, and everyone who wants to know when it is confirmed."""

    __slots__ = (
        "callbacks",
        "done",
        "error",
        "first_index",
        "futures",
        "payload_bytes",
        "records",
        "segment",
        "waiters",
    )

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
        """`done`, read afresh: another thread may have set it."""
        return self.done

    @property
    def wanted(self) -> bool:
        return bool(self.waiters or self.callbacks or self.futures)


def decide(groups: list[Group], error: Exception | None) -> None:
    for group in groups:
        group.error = error
        group.done = True
        group.records = []


def nothing() -> None:
    """A callback that only says that the group is wanted."""


def left(group: Group, parked: threading.Lock) -> bool:
    """A waiter leaves unless it was woken just now; then it has to act as one that was."""
    try:
        group.waiters.remove(parked)
    except ValueError:
        return False
    return True


def wake_one(group: Group) -> None:
    """Wake one waiter of a group, who wakes the next if the group is decided."""
    try:
        parked = group.waiters[-1]
        del group.waiters[-1]
    except IndexError:
        return
    with suppress(RuntimeError):  # two have chosen the same one
        parked.release()


def tell_all(groups: list[Group]) -> None:
    """Let everyone know who asked about decided groups; again, if an interrupt came between."""
    try:
        for group in groups:
            _tell(group)
    except BaseException:
        for group in groups:
            _tell(group)
        raise


def _tell(group: Group) -> None:
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
        except RuntimeError:  # the loop was closed meanwhile; nobody is left to tell
            _logger.debug("an event loop closed before its records were confirmed")


def _resolve(futures: list[asyncio.Future[None]]) -> None:
    for future in futures:
        if not future.done():
            future.set_result(None)
