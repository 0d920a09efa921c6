"""A relay that kills itself: python relay_process.py DATABASE STEP NUMBER.

STEP is where (before-send, after-send, before-delete, after-delete), NUMBER which time.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

from pillarbox.mailbox.postgres.relay import Relay


class Doomed(Relay):
    """Dies at one step."""

    def __init__(self, url: str, step: str, number: int) -> None:
        super().__init__(url)
        self._step = step
        self._left = number

    def _at(self, step: str) -> None:
        if step == self._step:
            self._left -= 1
            if self._left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    def send(self, url: str, row: Any) -> None:
        self._at("before-send")
        super().send(url, row)
        self._at("after-send")

    def delete(self, connection: Any, ids: list[int]) -> None:
        self._at("before-delete")
        super().delete(connection, ids)
        self._at("after-delete")


if __name__ == "__main__":
    _, url, step, number = sys.argv
    Doomed(url, step, int(number)).run_once()
