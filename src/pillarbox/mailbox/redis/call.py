"""What a verb asks of Redis: one `Call` is one round trip."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec import Struct

from pillarbox.mailbox.redis.resp import Keys
from pillarbox.mailbox.redis.scripts import Script
from pillarbox.mailbox.runner import Verb


class Call(Struct, gc=False):
    """One round trip: a script, or a command if there is none."""

    queue: str
    slot: int
    script: Script | None
    arguments: list[Any]  # of a script: keys of its own first, if it has any
    keys: Keys | None = None  # of a script: those of its queues
    own_keys: int = 0
    replicas: int = 0  # how many must confirm it
    replica_seconds: float = 0
    block_seconds: float = 0  # for how long the server may keep the answer back
    stop: Callable[[], bool] | None = None  # true if nobody should wait any more
    undo: Callable[[Any], Verb[None]] | None = None  # for an answer that a cancelled task missed
    doubtful: bool = False  # set when it may have been done though no answer came
