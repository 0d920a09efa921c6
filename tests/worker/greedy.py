"""Control: the same handlers, in a worker that claims more than it can start."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pillarbox.worker.intake import Intake
from tests.worker import shop

_receive = Intake._receive
pack = shop.pack


def _greedy(self: Intake, free: int, wait: float) -> Sequence[Any]:
    return _receive(self, free + 4, wait)


Intake._receive = _greedy  # type: ignore[method-assign]
