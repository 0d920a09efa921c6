"""Translates errors of a store's log to mailbox errors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pillarbox.core.errors import MailboxClosedError, MailboxFullError, MailboxStorageError
from pillarbox.log import LogClosedError, LogError, LogFullError, LogLockedError
from pillarbox.log.errors import holder_of_lock


def as_mailbox_error(error: Exception, path: str) -> Exception:
    """Return the mailbox error for an error in the log of the store at `path`."""
    if isinstance(error, LogFullError):
        return MailboxFullError(
            f"{error}. You can still receive and acknowledge messages, which frees space"
        )
    if isinstance(error, LogClosedError):
        return MailboxClosedError(f"the store {path} was closed: open it again")
    if isinstance(error, LogLockedError):
        return MailboxStorageError(
            f"the store {path} is open in {holder_of_lock(error.pid)}, and only one process can "
            "have it open: close it there first, or give this process a store of its own"
        )
    if isinstance(error, OSError) and error.filename is not None:
        return MailboxStorageError(
            f"the store {path} can't be used: {error.strerror} ({error.filename}); check that the "
            "path is right and that this user may write there"
        )
    return MailboxStorageError(str(error))


@contextmanager
def translated(path: str) -> Iterator[None]:
    try:
        yield
    except (LogError, OSError) as error:
        raise as_mailbox_error(error, path) from error
