"""The recipients of a bus: their names, their queues, and the error for an unknown one."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, NamedTuple

from pillarbox.bus.envelope import Letter
from pillarbox.core.errors import InvalidParameterError, MailboxError
from pillarbox.mailbox.local import LocalMailbox
from pillarbox.mailbox.queue_session import QueueSession

_NAME = re.compile(r"[A-Za-z0-9_-]{1,76}\Z")  # leaves room for `_dlq` in the queue name
_NAMED_MAX = 10


class Recipient(NamedTuple):
    """The queue of a recipient, and a mailbox to receive from it."""

    session: QueueSession
    box: LocalMailbox[Letter]


class UnknownRecipientError(MailboxError, LookupError):
    """There is no such recipient; nothing was sent."""

    def __init__(self, recipient: object, known: Iterable[str]) -> None:
        names = sorted(known)
        listed = ", ".join(names[:_NAMED_MAX]) or "none yet"
        more = f" and {len(names) - _NAMED_MAX:,} more" if len(names) > _NAMED_MAX else ""
        super().__init__(
            f"recipient {str(recipient)[:80]!r} is not registered; register() it, or choose one of "
            f"these: {listed}{more}"
        )
        self.recipient = recipient


def check_name(name: Any) -> None:
    """Raise if a queue can't have this name."""
    if not isinstance(name, str) or not _NAME.match(name):
        raise InvalidParameterError(
            "recipient", name, "1 to 76 letters, digits, hyphens or underscores"
        )
