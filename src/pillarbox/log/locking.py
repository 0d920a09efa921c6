"""The lock file of a log, which allows one writing process.

A forked child gives up its copy of the lock at once, so that it can't keep the log locked after
its parent has ended.
"""

from __future__ import annotations

import logging
import os

from pillarbox.log.disk import Disk, read_file, write_all
from pillarbox.log.errors import LogLockedError

LOCK_FILE = "lock"
_logger = logging.getLogger("pillarbox.log")


def take_lock(disk: Disk, directory: str) -> int:
    """Lock the log for writing; `LogLockedError` names the process that has the lock."""
    path = f"{directory}/{LOCK_FILE}"
    handle = disk.open(path, write=True, create=True)
    if not disk.lock(handle, exclusive=True):
        disk.close(handle)
        text = read_file(disk, path).strip()
        raise LogLockedError(directory, int(text) if text.isdigit() else None)
    try:
        disk.truncate(handle, 0)
        write_all(disk, handle, [str(os.getpid()).encode()], 0)
    except OSError:
        # The pid is only informative; a full disk must not keep the log from opening.
        _logger.debug("could not write the pid to %s", path)
    return handle
