"""Waiting for what a test needs."""

from __future__ import annotations

from typing import Any

from pillarbox.mailbox.postgres.listener import listener_for
from pillarbox.testing.redis import until


def until_parked(box: Any, count: int = 1) -> None:
    """Return once this many receives of this process wait at the queue of a mailbox."""
    verbs = box._verbs
    listener = listener_for(verbs.database)
    try:
        until(lambda: listener.parked(verbs.queue_id) >= count, f"{count} receives are parked")
    finally:
        listener.release()
