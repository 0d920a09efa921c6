"""Control: the same handlers, in a worker that claims more than it can start."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pillarbox.worker.receiver import Receiver
from tests.worker import shop

_receive = Receiver._receive
pack = shop.pack


def _greedy(self: Receiver, free: int, wait: float) -> Sequence[Any]:
    return _receive(self, free + 4, wait)


Receiver._receive = _greedy  # type: ignore[method-assign]
