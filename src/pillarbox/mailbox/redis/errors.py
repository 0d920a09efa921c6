"""Errors specific to mailboxes on Redis.

UnknownOutcomeError
└── NotReplicatedError     it was done, but too few replicas have confirmed it
"""

from __future__ import annotations

from pillarbox.core.errors import MailboxError, UnknownOutcomeError


class NotReplicatedError(UnknownOutcomeError):
    """The master stored the message, but too few replicas confirmed it in time."""


class RefusedError(MailboxError):
    """Redis returned an error that a retry can't fix; `code` is its first word."""

    def __init__(self, queue: str, text: str) -> None:
        super().__init__(
            f"mailbox {queue!r}: Redis refused it ({text}): check that nothing else writes to its "
            "keys, and that the server is Redis 7 or newer"
        )
        self.queue = queue
        self.text = text
        self.code = text.partition(" ")[0]

    def __reduce__(self) -> tuple[type[RefusedError], tuple[str, str]]:
        return type(self), (self.queue, self.text)
