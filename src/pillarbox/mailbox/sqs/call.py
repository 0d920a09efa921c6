"""What a verb asks of SQS: a call, or a pause before it is tried again."""

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
_READS = ("get_", "list_", "receive_")  # what begins like this changes nothing that matters
_PAUSE_SECONDS = 0.1  # before the second attempt; then doubled each time


class Call(Struct, frozen=True):
    """Ask SQS. A call with an owner ends when the owner's mailbox is closed."""

    operation: str
    params: dict[str, Any]
    owner: Any = None

    @property
    def queue(self) -> str:
        """The name of the queue that it is about."""
        names = map(self.params.get, ("QueueName", "QueueUrl", "SourceArn"))
        return re.split("[/:]", next(filter(None, names), ""))[-1]


class Pause(Struct, frozen=True):
    """Let some time pass; cut short when the owner's mailbox is closed."""

    seconds: float
    owner: Any = None


Step = Call | Pause


def ask(operation: str, *, owner: Any = None, **params: Any) -> Verb[Any]:
    """Call SQS, and again after what may be over soon; its answer."""
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
    """The time before the next attempt: twice as long each time, and never for all at once."""
    return Pause(_PAUSE_SECONDS * 2 ** (attempt - 1) * random.uniform(0.5, 1.5), owner)
