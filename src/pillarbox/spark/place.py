"""What a URL means to the data source: a log, a store, or one mailbox of a store.

`file:./logs/orders` is a log if there is one in that directory; else the mailbox `orders` of the
store in `./logs`. A path without a scheme means the same. Relative paths are made absolute where
the driver runs, because executors run elsewhere.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from pillarbox.log.layout import is_segment_name
from pillarbox.log.log import LOCK_FILE
from pillarbox.spark.errors import OptionError

_STORE_LOG = "log"


@dataclass(frozen=True, slots=True)
class Place:
    """A log; the store that it is the log of, if any; and the one queue that is meant, if any."""

    log: str
    store: str | None = None
    queue: str | None = None


def place_of(url: str) -> Place:
    """What is there to be read at `url`."""
    path = local_directory(url)
    if is_log(path):
        parent, name = os.path.split(path)
        return Place(path, parent if name == _STORE_LOG and _has_snapshot(parent) else None)
    if is_log(f"{path}/{_STORE_LOG}"):
        return Place(f"{path}/{_STORE_LOG}", path)
    parent, queue = os.path.split(path)
    if is_log(f"{parent}/{_STORE_LOG}"):
        return Place(f"{parent}/{_STORE_LOG}", parent, queue)
    raise OptionError(
        f"there is no log in {path}, and no store with such a mailbox in {parent}; check the path,"
        " or make the log first by writing to it"
    )


def log_directory(url: str) -> str:
    """The directory of the log that `url` names, whether it is there or not."""
    return local_directory(url)


def mailbox_url(url: str, *, wanted: bool = False) -> str | None:
    """The URL of the mailbox that is meant; None if `url` means a log.

    A mailbox on disk that is not there yet has to be `wanted`: the same path could be a log.
    """
    if has_scheme(url) and not url.startswith("file:"):
        return url
    path = local_directory(url)
    store = f"{os.path.dirname(path)}/{_STORE_LOG}"
    return f"file:{path}" if wanted or (not is_log(path) and is_log(store)) else None


def local_directory(url: str) -> str:
    """The absolute path that a file URL, or a plain path, names."""
    if has_scheme(url) and not url.startswith("file:"):
        raise OptionError(f"{url} is not a directory; give a path or a URL that begins with file:")
    path = url.removeprefix("file:")
    return os.path.abspath(path.removeprefix("//") if path.startswith("//") else path)


def has_scheme(url: str) -> bool:
    return url.startswith(("memory:", "file:")) or "://" in url


def is_log(directory: str) -> bool:
    """Whether there is a log in the directory, be it an empty one."""
    try:
        names = os.listdir(directory)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return any(name == LOCK_FILE or is_segment_name(name) for name in names)


def _has_snapshot(directory: str) -> bool:
    return os.path.exists(f"{directory}/snapshot")
