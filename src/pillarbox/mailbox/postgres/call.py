"""What a verb asks of PostgreSQL: a statement (`Call`), or to wait until there may be more."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec import Struct

from pillarbox.mailbox.runner import Verb


class Call(Struct, gc=False):
    """One statement in one round trip; its answer is a list of rows."""

    queue: str
    statement: str
    parameters: tuple[Any, ...] = ()
    repeatable: bool = True  # may be sent again after its answer was lost
    undo: Callable[[Any], Verb[None]] | None = None  # for an answer that a cancelled task missed
    doubtful: bool = False  # set when it may have been done though no answer came
    connection: Any = None  # the caller's own, whose transaction this takes part in
    enter: int | None = None  # no statement: register this process as one that waits at a queue
    sent: bool = False  # set when the server may have seen this try of it


class Initialise(Struct, gc=False):
    """Create or migrate the schema."""

    queue: str


class Wait(Struct, gc=False):
    """Sleep until the queue may have something new, at most for some seconds."""

    queue: str
    queue_id: int
    position: int | None  # what `Call.enter` answered: what came after it ends the wait at once
    seconds: float
    due_seconds: float | None  # in how many something is due by itself
    stop: Callable[[], bool]  # true if nobody should wait any more
    ticket: int  # its place among those who wait, which it keeps when it waits again
