"""What several unit tests need: threads that report, and a clock that tells who waits."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from pillarbox.testing.clock import FakeClock
from pillarbox.testing.contract.cases.case import Call

PATIENCE_SECONDS = 20


def start(work: Callable[[], Any]) -> Call[Any]:
    """Let a thread do this; `result` fails if it hangs."""
    return Call(work, PATIENCE_SECONDS)


class WatchedClock(FakeClock):
    """A fake clock that can be asked to return once so many wait."""

    def __init__(self) -> None:
        super().__init__()
        self._changed = threading.Condition()

    def _at(self, until: int, wake: Callable[[], object]) -> Callable[[], None]:
        cancel = super()._at(until, wake)
        with self._changed:
            self._changed.notify_all()
        return cancel

    def wait_until(self, condition: Callable[[], bool]) -> None:
        """Return once this holds; it is looked at whenever someone begins to wait."""
        with self._changed:
            assert self._changed.wait_for(condition, PATIENCE_SECONDS), f"{self.waiting} wait"

    def wait_until_waiting(self, count: int) -> None:
        self.wait_until(lambda: self.waiting >= count)


@contextmanager
def notices() -> Iterator[list[str]]:
    """What the library has to say meanwhile."""
    said: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: said.append(handler.format(record))  # type: ignore[method-assign]
    logger = logging.getLogger("pillarbox")
    logger.addHandler(handler)
    try:
        yield said
    finally:
        logger.removeHandler(handler)
