"""The interface between the log and the disk: the few operations that a log needs.

`RealDisk` is the operating system. Tests use `pillarbox.testing.disk.SimDisk`, which loses,
tears and refuses writes. Every method raises `OSError` as the system call would; `pwrite` may
write less than asked, `write_all` loops.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import mmap
import os
from collections.abc import Iterator, Sequence
from typing import Protocol

TEMPORARY_SUFFIX = ".tmp"
#: On macOS a plain sync does not flush the drive's cache.
_FULL_SYNC: int | None = getattr(fcntl, "F_FULLFSYNC", None)
#: Read from the page cache only (Linux).
_NO_WAIT: int | None = getattr(os, "RWF_NOWAIT", None)
_NO_SPACE = frozenset((errno.ENOSPC, errno.EDQUOT))


class Mapping(Protocol):
    """File contents as a buffer whose slices are bytes: an mmap, or bytes."""

    def __len__(self) -> int: ...
    def __getitem__(self, key: slice, /) -> bytes: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...
    def find(self, sub: bytes, start: int = ..., end: int = ..., /) -> int: ...


class SharedWord(Protocol):
    """16 bytes of memory shared with other processes, never synced."""

    def get(self) -> bytes: ...
    def set(self, value: bytes) -> None: ...
    def close(self) -> None: ...


class Disk(Protocol):
    """What a log needs of a disk. A handle is an int, like a file descriptor."""

    def open(self, path: str, *, write: bool = False, create: bool = False) -> int: ...
    def close(self, handle: int) -> None: ...
    def pread(self, handle: int, size: int, offset: int, *, wait: bool = True) -> bytes:
        """Return up to `size` bytes. Without `wait`, BlockingIOError if they are not in memory."""

    def pwrite(self, handle: int, parts: Sequence[bytes], offset: int) -> int: ...
    def fdatasync(self, handle: int) -> None: ...
    def allocate(self, handle: int, offset: int, size: int) -> None: ...
    def truncate(self, handle: int, size: int, /) -> None: ...
    def size(self, handle: int) -> int: ...
    def map(self, handle: int, size: int) -> Mapping: ...
    def lock(self, handle: int, *, exclusive: bool) -> bool: ...
    def rename(self, old: str, new: str, /) -> None: ...
    def link(self, old: str, new: str, /) -> None: ...
    def unlink(self, path: str, /) -> None: ...
    def make_directory(self, path: str) -> None: ...
    def names(self, path: str) -> list[str]: ...
    def sync_directory(self, path: str) -> None: ...
    def free_bytes(self, path: str) -> int: ...
    def shared_word(self, path: str, *, write: bool) -> SharedWord: ...


def _allocate(handle: int, offset: int, size: int) -> None:
    # Without this call, the zeros that are written next allocate the space.
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(handle, offset, size)


class _MappedWord:
    """A `SharedWord` in a shared mapping: setting it needs no system call."""

    def __init__(self, path: str, *, write: bool) -> None:
        flags = os.O_RDWR | os.O_CREAT if write else os.O_RDONLY
        handle = os.open(path, flags | os.O_CLOEXEC, 0o644)
        try:
            if write:
                _allocate(handle, 0, 16)  # storing into a hole on a full disk raises SIGBUS
            if write and os.fstat(handle).st_size < 16:
                os.ftruncate(handle, 16)
            access = mmap.ACCESS_WRITE if write else mmap.ACCESS_READ
            self._map = mmap.mmap(handle, 16, access=access)
        except ValueError as error:  # still empty: its writer is about to size it
            raise FileNotFoundError(errno.ENOENT, "not there yet", path) from error
        finally:
            os.close(handle)

    def get(self) -> bytes:
        return self._map[:16]

    def set(self, value: bytes) -> None:
        self._map[:16] = value

    def close(self) -> None:
        self._map.close()


class RealDisk:
    """The files of the operating system."""

    allocate = staticmethod(_allocate)
    truncate = staticmethod(os.ftruncate)
    rename = staticmethod(os.rename)
    link = staticmethod(os.link)
    unlink = staticmethod(os.unlink)

    def open(self, path: str, *, write: bool = False, create: bool = False) -> int:
        flags = os.O_RDWR if write else os.O_RDONLY
        return os.open(path, flags | (os.O_CREAT if create else 0) | os.O_CLOEXEC, 0o644)

    def close(self, handle: int) -> None:
        _not_for_children.discard(handle)
        os.close(handle)

    def pread(self, handle: int, size: int, offset: int, *, wait: bool = True) -> bytes:
        if wait or _NO_WAIT is None:
            return os.pread(handle, size, offset)
        buffer = bytearray(size)
        try:
            count = os.preadv(handle, [buffer], offset, _NO_WAIT)
        except OSError as error:
            if error.errno != errno.EOPNOTSUPP:
                raise
            return os.pread(handle, size, offset)  # not supported by this file system
        if count < size and count < os.fstat(handle).st_size - offset:
            raise BlockingIOError(errno.EAGAIN, "only a part is in memory")
        return bytes(buffer[:count])

    def pwrite(self, handle: int, parts: Sequence[bytes], offset: int) -> int:
        if len(parts) == 1:
            return os.pwrite(handle, parts[0], offset)
        return os.pwritev(handle, parts, offset)

    def fdatasync(self, handle: int) -> None:
        if _FULL_SYNC is not None:
            fcntl.fcntl(handle, _FULL_SYNC)
        else:
            os.fdatasync(handle)

    def size(self, handle: int) -> int:
        return os.fstat(handle).st_size

    def map(self, handle: int, size: int) -> Mapping:
        if size == 0:
            return b""
        try:
            # The mapping duplicates the descriptor, so a shared lock lasts as long as the mapping.
            return mmap.mmap(handle, size, access=mmap.ACCESS_READ)
        except ValueError:  # the writer has just sealed the segment, and truncated it
            return self.map(handle, self.size(handle))

    def lock(self, handle: int, *, exclusive: bool) -> bool:
        kind = fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH
        if exclusive:
            keep_from_children(handle)
        try:
            fcntl.flock(handle, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def make_directory(self, path: str) -> None:
        os.makedirs(path, exist_ok=True)

    def names(self, path: str) -> list[str]:
        return sorted(os.listdir(path))

    def sync_directory(self, path: str) -> None:
        handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

    def free_bytes(self, path: str) -> int:
        stat = os.statvfs(path)
        return stat.f_bavail * stat.f_frsize

    def shared_word(self, path: str, *, write: bool) -> SharedWord:
        return _MappedWord(path, write=write)


_not_for_children: set[int] = set()


def keep_from_children(handle: int) -> None:
    """Keep a lock from forked children, which would hold it after this process has ended."""
    _not_for_children.add(handle)


def _after_fork() -> None:
    """Replace the files but keep their descriptors, which objects in the child may close."""
    if _not_for_children:
        nothing = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        for handle in _not_for_children:
            os.dup2(nothing, handle, inheritable=False)
        os.close(nothing)
    _not_for_children.clear()


os.register_at_fork(after_in_child=_after_fork)


@contextlib.contextmanager
def opened(disk: Disk, path: str, *, write: bool = False, create: bool = False) -> Iterator[int]:
    """Open a file for the `with` block."""
    handle = disk.open(path, write=write, create=create)
    try:
        yield handle
    finally:
        disk.close(handle)


def has_no_space(error: OSError) -> bool:
    """Return whether the disk, or the user's quota, is full."""
    return error.errno in _NO_SPACE


def write_all(disk: Disk, handle: int, parts: Sequence[bytes], offset: int) -> None:
    """Write all of `parts` at `offset`, in as many calls as it takes."""
    total = sum(map(len, parts)) if len(parts) > 1 else len(parts[0])
    written = 0
    while written < total:
        try:
            step = disk.pwrite(handle, parts, offset + written)
        except InterruptedError:
            continue
        if step <= 0:
            raise OSError(errno.EIO, "the disk wrote nothing")
        written += step
        if written < total:
            parts = [b"".join(parts)[step:]]


def sync(disk: Disk, handle: int) -> None:
    """Sync the data of a file. Any error but EINTR is final: the page cache may drop data."""
    while True:
        try:
            return disk.fdatasync(handle)
        except InterruptedError:
            continue


def make_directory(disk: Disk, path: str) -> None:
    """Create a directory and its parents, durably.

    Syncs the parent of each new directory, from the top down, and of the first existing one,
    which may have been created by a process that was killed before it could sync.
    """
    path = path.rstrip("/")
    missing = []
    while path and (names := _names(disk, path)) is None:
        missing.append(path)
        path = path.rpartition("/")[0]
    if path and (missing or not names):
        with contextlib.suppress(PermissionError):  # not created by us
            _sync_parent(disk, path)
    for each in reversed(missing):
        disk.make_directory(each)
        _sync_parent(disk, each)


def _names(disk: Disk, path: str) -> list[str] | None:
    """Return the names in a directory; None if it does not exist."""
    try:
        return disk.names(path)
    except FileNotFoundError:
        return None
    except PermissionError:
        return []


def _sync_parent(disk: Disk, path: str) -> None:
    parent = path.rpartition("/")[0]
    disk.sync_directory(parent or ("/" if path.startswith("/") else "."))


def read_file(disk: Disk, path: str) -> bytes:
    """Return the contents of a small file."""
    with opened(disk, path) as handle:
        return disk.pread(handle, disk.size(handle), 0)


def replace_file(disk: Disk, directory: str, name: str, content: bytes) -> None:
    """Replace a file atomically: a crash leaves the old content or the new one."""
    temporary = f"{directory}/{name}{TEMPORARY_SUFFIX}"
    handle = disk.open(temporary, write=True, create=True)
    try:
        disk.truncate(handle, 0)
        write_all(disk, handle, [content], 0)
        sync(disk, handle)
    except OSError as error:
        if has_no_space(error):  # do not waste space on half a file
            disk.truncate(handle, 0)
        raise
    finally:
        disk.close(handle)
    disk.rename(temporary, f"{directory}/{name}")
    disk.sync_directory(directory)


def remove_temporaries(disk: Disk, directory: str) -> None:
    """Delete what `replace_file` left behind when it was killed."""
    for name in disk.names(directory):
        if name.endswith(TEMPORARY_SUFFIX):
            disk.unlink(f"{directory}/{name}")
