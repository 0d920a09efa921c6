"""What a URL or a path means: a directory, a remote store, a log, a store, or a mailbox.

A location is an absolute path, or a URL such as `s3a://bucket/shop`. `file:./logs/orders` is a log
if there is one in that directory; else the mailbox `orders` of the store in `./logs`. A path
without a scheme means the same. Relative paths are made absolute on the driver, because executors
run elsewhere.
"""

from __future__ import annotations

import os
from urllib.parse import urlsplit

from pillarbox.mailbox.data_directory import (
    LOG,
    DataDirectory,
    data_directory_at,
    file_path,
    is_log,
)
from pillarbox.spark.errors import OptionError

#: The schemes of remote stores, and what Spark calls them.
_SCHEMES = {each: each for each in ("s3a", "gs", "abfss", "hdfs")} | {"s3": "s3a", "abfs": "abfss"}


def location_of(url: str) -> str | None:
    """Where a URL or a path leads: a directory or a remote store; None for anything else."""
    scheme, separator, rest = url.partition("://")
    if separator and scheme in _SCHEMES:
        return f"{_SCHEMES[scheme]}://{rest.rstrip('/')}"
    return None if file_path(url) is None else local_directory(url)


def is_remote_store(location: str) -> bool:
    return "://" in location


def spark_path(location: str) -> str:
    """A location as Spark is told it."""
    return location if is_remote_store(location) else f"file:{location}"


def data_directory_of(url: str) -> DataDirectory:
    """What is there to be read at `url`."""
    path = local_directory(url)
    found = data_directory_at(path)
    if found is not None:
        return found
    parent = os.path.dirname(path)
    raise OptionError(
        f"there is no log in {path}, and no store with such a mailbox in {parent}; check the path,"
        " or create the log first by writing to it"
    )


def mailbox_url(url: str, *, wanted: bool = False) -> str | None:
    """The URL of the mailbox that is meant; None if `url` means a log.

    A mailbox on disk that is not there yet has to be `wanted`: the same path could be a log.
    """
    if file_path(url) is None:
        return url
    path = local_directory(url)
    store = f"{os.path.dirname(path)}/{LOG}"
    return f"file:{path}" if wanted or (not is_log(path) and is_log(store)) else None


def local_directory(url: str) -> str:
    """The absolute path that a file URL, or a plain path, names."""
    path = file_path(url)
    if path is None:
        raise OptionError(f"{url} is not a directory; give a path or a URL that begins with file:")
    return os.path.abspath(path)


def without_secret(url: str) -> str:
    """A URL as it may be shown: who asks and with which secret is left out."""
    parts = urlsplit(url)
    if not parts.netloc or parts.scheme in _SCHEMES:  # which have a container before the @
        return url
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
