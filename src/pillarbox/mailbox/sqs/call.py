"""The requests of a verb to SQS: a call, or a pause before a retry."""

from __future__ import annotations

import random
import re
from typing import Any

from msgspec import Struct

from pillarbox.core.errors import (
    MailboxConnectionError,
    MailboxFullError,
    UnknownOutcomeError,
)
from pillarbox.mailbox.runner import Verb
from pillarbox.mailbox.sqs.errors import LostAnswerError

ATTEMPTS_MAX = 4
_READS = ("get_", "list_", "receive_")  # prefixes of read-only operations
_PAUSE_SECONDS = 0.1  # before the second attempt; then doubled each time


class Call(Struct, frozen=True):
    """A call to SQS. With an owner, it ends when the owner is closed."""

    operation: str
    params: dict[str, Any]
    owner: Any = None

    @property
    def queue(self) -> str:
        """The name of the queue, for error messages."""
        names = map(self.params.get, ("QueueName", "QueueUrl", "SourceArn"))
        return re.split("[/:]", next(filter(None, names), ""))[-1]


class Pause(Struct, frozen=True):
    """A pause that ends early when the owner is closed."""

    seconds: float
    owner: Any = None


Step = Call | Pause


def ask(operation: str, *, owner: Any = None, **params: Any) -> Verb[Any]:
    """Call SQS, retrying transient errors, and return the response."""
    attempt = 0
    doubtful = False
    while True:
        attempt += 1
        call = Call(operation, params, owner)
        try:
            return (yield call)
        except (MailboxConnectionError, MailboxFullError) as error:
            doubtful |= isinstance(error, LostAnswerError)
            if attempt < ATTEMPTS_MAX:
                pass
            elif doubtful and not operation.startswith(_READS):
                raise UnknownOutcomeError(
                    f"{error}; queue {call.queue!r} may or may not have been changed: check "
                    "it before you retry"
                ) from error
            else:
                raise
        yield pause(attempt, owner)


def pause(attempt: int, owner: Any = None) -> Pause:
    """Return the pause before the next attempt: exponential backoff with jitter."""
    return Pause(_PAUSE_SECONDS * 2 ** (attempt - 1) * random.uniform(0.5, 1.5), owner)
