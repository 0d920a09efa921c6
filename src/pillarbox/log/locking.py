"""The lock of a log: one process writes, and an error names it.

The lock belongs to the process that took it. A child that it forks gives up its copy at once,
so that it can't keep the log locked after its parent has died.
"""

from __future__ import annotations

import logging
import os

from pillarbox.log.disk import Disk, read_file, write_all
from pillarbox.log.errors import LogLockedError

LOCK_FILE = "lock"
_logger = logging.getLogger("pillarbox.log")


def take_lock(disk: Disk, directory: str) -> int:
    """Become the log's writer, or say who is."""
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
        # The pid is for a human's eyes; a full disk must not keep the log from opening.
        _logger.debug("the pid could not be written to %s", path)
    return handle
