"""Resolves PATH on the command line: a store, its log, a plain log, or a mailbox URL."""

from __future__ import annotations

import os
from pathlib import Path

from pillarbox.log import LogError
from pillarbox.log.directory import ASIDE
from pillarbox.mailbox.data_directory import (
    DataDirectory,
    data_directory_at,
    data_directory_in,
    file_path,
)


def find_log(text: str) -> DataDirectory:
    """Find the log of PATH; raise LogError if there is none."""
    path, is_url = file_path(text) or text, text.startswith("file:")
    data = data_directory_at(path) if is_url else data_directory_in(path)
    if data is not None:
        return data
    if is_url:
        parent, queue = os.path.split(path)
        raise LogError(
            f"{path} contains neither a store nor a log, and {parent or '.'} contains no store"
            f" with a queue {queue!r}; give the directory of a store or of a log"
        )
    if not os.path.isdir(path):
        raise LogError(
            f"there is no directory {path}; give the directory of a store or of a log, or the URL"
            f" of a mailbox (file:{path})"
        )
    raise LogError(f"{path} contains neither a store nor a log; give the directory of one")


def bytes_on_disk(store: str) -> int:
    """Return the size of a store on disk, without the files that repairs have set aside."""
    total = 0
    for directory, inside, files in os.walk(store):
        inside[:] = [name for name in inside if name != ASIDE]
        total += sum((Path(directory) / name).stat().st_size for name in files)
    return total
