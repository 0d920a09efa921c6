"""The requests of a verb to PostgreSQL: a statement (`Call`), or a wait for messages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec import Struct

from pillarbox.mailbox.runner import Verb


class Call(Struct, gc=False):
    """One statement in one round trip; its result is a list of rows."""

    queue: str
    statement: str
    parameters: tuple[Any, ...] = ()
    repeatable: bool = True  # may be repeated after its response was lost
    # Undoes a response that a cancelled task missed.
    undo: Callable[[Any], Verb[None]] | None = None
    doubtful: bool = False  # set when it may have taken effect without a response
    connection: Any = None  # the caller's connection, to use its transaction
    enter: int | None = None  # no statement: register this process as waiting at a queue
    sent: bool = False  # set when the server may have received this attempt


class Initialise(Struct, gc=False):
    """Create or migrate the schema."""

    queue: str


class Wait(Struct, gc=False):
    """Wait until the queue may have new messages, at most for some seconds."""

    queue: str
    queue_id: int
    position: int | None  # result of `Call.enter`: a later notification ends the wait at once
    seconds: float
    due_seconds: float | None  # seconds until the next timer is due
    stop: Callable[[], bool]  # returns True to end the wait
    ticket: int  # its position among the waiters, which it keeps when it waits again
