"""What a verb of an SQS mailbox asks for, step by step, and what every verb shares.

A verb is a generator: it yields steps, and is sent what each came to. So a verb is written once;
`SQSMailbox` runs it with boto3 and `AsyncSQSMailbox` with aiobotocore.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Generator
from typing import Any, TypeVar

from msgspec import Struct

from pillarbox.core.errors import MailboxConnectionError, MailboxError, MailboxFullError

R = TypeVar("R")

ATTEMPTS_MAX = 4
_PAUSE_SECONDS = 0.1  # before the second attempt; then doubled each time


class Call(Struct, frozen=True):
    """Ask SQS. A parked call ends when the mailbox is closed."""

    operation: str
    params: dict[str, Any]
    parked: bool = False


class Pause(Struct, frozen=True):
    """Let some time pass."""

    seconds: float


class Interrupted(Exception):
    """A parked call was ended by `close`."""


Step = Call | Pause
Verb = Generator[Step, Any, R]


def run(verb: Verb[R], do: Callable[[Step], Any]) -> R:
    """What the verb answers, when each of its steps is done like this."""
    answer: Any = None
    error: BaseException | None = None
    while True:
        try:
            step = verb.send(answer) if error is None else verb.throw(error)
        except StopIteration as end:
            result: R = end.value
            return result
        answer = error = None
        try:
            answer = do(step)
        except (MailboxError, Interrupted) as raised:
            error = raised


def ask(operation: str, *, parked: bool = False, **params: Any) -> Verb[Any]:
    """Call SQS, and again after what may be over soon; its answer."""
    attempt = 0
    while True:
        attempt += 1
        try:
            return (yield Call(operation, params, parked))
        except (MailboxConnectionError, MailboxFullError):
            if attempt == ATTEMPTS_MAX:
                raise
        yield pause(attempt)


def pause(attempt: int) -> Pause:
    """The time before the next attempt: twice as long each time, and never for all at once."""
    return Pause(_PAUSE_SECONDS * 2 ** (attempt - 1) * random.uniform(0.5, 1.5))
