"""What every run of the model has in common."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from itertools import count
from typing import Any

import pytest

from pillarbox.core import decide, fair, lane
from pillarbox.core.queue import Queue
from pillarbox.mailbox import queue_steps
from tests.model.sameness import snapshot

_DECISIONS = (
    *("send", "deliver", "receive", "nack", "reject", "tick"),
    *("reschedule", "change_visibility", "force", "redrive", "remove"),
)
_LOOKED_AT = 16  # one decision in so many is looked at


@pytest.fixture(autouse=True)
def _short_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lanes of very few messages a part, so that the short queues of a model have several."""
    monkeypatch.setattr(lane, "PART_MAX", 3)
    # A world sets its own:
    monkeypatch.setattr(fair, "NOISY_HELD_MIN", fair.NOISY_HELD_MIN)
    monkeypatch.setattr(fair, "NOISY_SHARE", fair.NOISY_SHARE)
    monkeypatch.setattr(queue_steps, "SLICE", queue_steps.SLICE)


@pytest.fixture(autouse=True)
def _decisions_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = count()

    def pure(decision: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(decision)
        def decided(queue: Queue, *args: Any) -> Any:
            if next(calls) % _LOOKED_AT:
                return decision(queue, *args)
            watched = [queue] if queue.dead_letters is None else [queue, queue.dead_letters]
            before = [snapshot(each) for each in watched]
            answer = decision(queue, *args)
            assert [snapshot(each) for each in watched] == before, "a decision changed the queue"
            return answer

        return decided

    for name in _DECISIONS:
        monkeypatch.setattr(decide, name, pure(getattr(decide, name)))
