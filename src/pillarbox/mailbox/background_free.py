"""Gives the memory of very many messages back bit by bit: all at once would hold others up."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from threading import Thread
from typing import Any

from pillarbox.core.lane import Lane
from pillarbox.mutex import short_pause

_AT_ONCE_MAX = 10_000
_SLICE = 150


def free_in_background(lanes: Iterable[Lane[Any]]) -> None:
    """Keep what is in long lanes, which are about to be cleared, and let go of it bit by bit."""
    kept = [part for lane in lanes if len(lane) > _AT_ONCE_MAX for part in lane.parts]
    if kept:
        Thread(target=_free, args=[kept], name="pillarbox-free", daemon=True).start()


def _free(kept: list[deque[Any]]) -> None:
    for each in kept:
        while each:
            for _ in range(min(len(each), _SLICE)):
                each.popleft()
            short_pause()
