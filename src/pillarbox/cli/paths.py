"""What PATH means on the command line: a store, its log, a plain log, or the URL of a mailbox."""

from __future__ import annotations

import os
from pathlib import Path

from pillarbox.log import LogError
from pillarbox.log.directory import ASIDE
from pillarbox.mailbox.place import Place, file_path, place_at, place_in


def find_log(text: str) -> Place:
    """Find the log behind PATH; LogError if there is none."""
    path, is_url = file_path(text) or text, text.startswith("file:")
    found = place_at(path) if is_url else place_in(path)
    if found is not None:
        return found
    if is_url:
        parent, queue = os.path.split(path)
        raise LogError(
            f"{path} contains neither a store nor a log, and {parent or '.'} contains no store"
            f" with a queue {queue!r}; give the directory of a store or of a log"
        )
    if not os.path.isdir(path):
        raise LogError(f"there is no directory {path}; give the directory of a store or of a log")
    raise LogError(f"{path} contains neither a store nor a log; give the directory of one")


def bytes_on_disk(store: str) -> int:
    """The size of a store on disk, without the files that repairs have set aside."""
    total = 0
    for directory, inside, files in os.walk(store):
        inside[:] = [name for name in inside if name != ASIDE]
        total += sum((Path(directory) / name).stat().st_size for name in files)
    return total
