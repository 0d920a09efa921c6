"""Resolves URLs and paths to a directory, a remote store, a log, a store or a mailbox.

A location is an absolute path, or a URL such as `s3a://bucket/shop`. `file:./logs/orders` is a log
if there is one in that directory; otherwise the mailbox `orders` of the store in `./logs`. A path
without a scheme means the same. Relative paths are made absolute on the driver, because executors
run in other directories.
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

#: The schemes of remote stores, mapped to Spark's names for them.
_SCHEMES = {each: each for each in ("s3a", "gs", "abfss", "hdfs")} | {"s3": "s3a", "abfs": "abfss"}


def location_of(url: str) -> str | None:
    """Return the directory or the remote store of a URL or a path; None for other URLs."""
    scheme, separator, rest = url.partition("://")
    if separator and scheme in _SCHEMES:
        return f"{_SCHEMES[scheme]}://{rest.rstrip('/')}"
    return None if file_path(url) is None else local_directory(url)


def is_remote_store(location: str) -> bool:
    return "://" in location


def spark_path(location: str) -> str:
    """Return a location as a path for Spark."""
    return location if is_remote_store(location) else f"file:{location}"


def absolute_url(url: str) -> str:
    """Return a URL that means the same in any working directory."""
    location = location_of(url)
    return url if location is None else spark_path(location)


def data_directory_of(url: str) -> DataDirectory:
    """Return the data directory of a log or a mailbox; raise OptionError if there is none."""
    path = local_directory(url)
    directory = data_directory_at(path)
    if directory is not None:
        return directory
    parent = os.path.dirname(path)
    raise OptionError(
        f"there is no log in {path}, and no store with such a mailbox in {parent}; check the path,"
        " or create the log first by writing to it"
    )


def mailbox_url(url: str, *, wanted: bool = False) -> str | None:
    """Return the URL of a mailbox; None if `url` is a log.

    A path that does not exist yet could be either; it is a mailbox only if `wanted`.
    """
    if file_path(url) is None:
        return url
    path = local_directory(url)
    store = f"{os.path.dirname(path)}/{LOG}"
    return f"file:{path}" if wanted or (not is_log(path) and is_log(store)) else None


def local_directory(url: str) -> str:
    """Return the absolute path of a file URL or a plain path."""
    path = file_path(url)
    if path is None:
        raise OptionError(f"{url} is not a directory; give a path or a URL that begins with file:")
    return os.path.abspath(path)


def without_secret(url: str) -> str:
    """Return a URL without user name and password, for messages."""
    parts = urlsplit(url)
    if not parts.netloc or parts.scheme in _SCHEMES:  # there, a container precedes the @
        return url
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
