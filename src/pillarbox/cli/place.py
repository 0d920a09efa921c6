"""What PATH means on the command line: a store, its log, a plain log, or the URL of a mailbox."""

from __future__ import annotations

import os
from pathlib import Path

from pillarbox.log import LogError
from pillarbox.log.recovery import ASIDE
from pillarbox.mailbox.place import Place, place_at, place_in

_SCHEME = "file:"


def place_of(text: str) -> Place:
    """Find the log behind PATH; LogError if there is none."""
    path = text.removeprefix(_SCHEME).removeprefix("//") if text.startswith(_SCHEME) else text
    found = place_at(path) if text.startswith(_SCHEME) else place_in(path)
    if found is not None:
        return found
    if text.startswith(_SCHEME):
        parent, queue = os.path.split(path)
        raise LogError(
            f"there is neither a store nor a log in {path}, nor a store in {parent or '.'} that"
            f" could have a queue {queue!r}; give the directory of one"
        )
    if not os.path.isdir(path):
        raise LogError(f"there is no directory {path}; give the directory of a store or of a log")
    raise LogError(f"there is neither a store nor a log in {path}; give the directory of one")


def bytes_on_disk(store: str) -> int:
    """What a store takes on disk, without what repairs have put aside."""
    total = 0
    for directory, inside, files in os.walk(store):
        inside[:] = [name for name in inside if name != ASIDE]
        total += sum((Path(directory) / name).stat().st_size for name in files)
    return total
