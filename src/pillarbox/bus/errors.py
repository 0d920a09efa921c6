"""The error of a bus; all others are those of mailboxes."""

from __future__ import annotations

from collections.abc import Iterable

from pillarbox.core.errors import MailboxError

_NAMED_MAX = 10


class UnknownRecipientError(MailboxError, LookupError):
    """There is no such recipient; nothing was sent."""

    sqs_code = "AWS.SimpleQueueService.NonExistentQueue"
    http_status = 400

    def __init__(self, recipient: object, known: Iterable[str]) -> None:
        names = sorted(known)
        listed = ", ".join(names[:_NAMED_MAX]) or "none yet"
        more = f" and {len(names) - _NAMED_MAX:,} more" if len(names) > _NAMED_MAX else ""
        super().__init__(
            f"recipient {str(recipient)[:80]!r} is not registered; register() it, or choose one of "
            f"these: {listed}{more}"
        )
        self.recipient = recipient
