"""What verbs ask of the server, as data, so that one plan serves threads and asyncio alike.

A plan is a generator: it yields calls, is sent their answers and returns the verb's. Who runs
it (`link`, `async_link`) does the I/O and all the trying again.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, TypeVar

from msgspec import Struct

from pillarbox.mailbox.redis.resp import Keys
from pillarbox.mailbox.redis.scripts import Script

R = TypeVar("R")


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
    doubtful: bool = False  # set when it may have been done though no answer came


Plan = Generator[Call, Any, R]
