"""A simulated disk for the log: it loses and tears writes, fills up and fails as real disks do.

Nothing is durable before a sync. `crash` returns a disk as a power loss could leave it: with any
subset of unsynced writes (each complete, cut off or torn by sectors), size changes, and directory
changes. After a failed sync, its writes may be lost forever, as with a page cache. Implements
`pillarbox.log.Disk`; `choose` selects the outcomes.
"""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar

from pillarbox.testing.disk_contents import (
    ALLOCATE,
    TRUNCATE,
    WRITE,
    Choose,
    Inode,
    SimDirectory,
    apply_change,
    apply_entry,
    survivor,
)

P = ParamSpec("P")
R = TypeVar("R")


def _atomic(
    operation: Callable[Concatenate[SimDisk, P], R],
) -> Callable[Concatenate[SimDisk, P], R]:
    @wraps(operation)
    def locked(self: SimDisk, /, *arguments: P.args, **options: P.kwargs) -> R:
        with self._lock:
            return operation(self, *arguments, **options)

    return locked


class SimDisk:
    """A disk in memory. `capacity_bytes` fills it; `before` may raise at any operation."""

    def __init__(
        self,
        *,
        capacity_bytes: int | None = None,
        before: Callable[[str, str], None] | None = None,
        after: Callable[[str], None] | None = None,
        short_write: Callable[[int], int] | None = None,
        sync_lies: bool = False,
    ) -> None:
        self.capacity_bytes = capacity_bytes
        self.before = before
        self.after = after
        self.short_write = short_write
        self.sync_lies = sync_lies
        self._directories: dict[str, SimDirectory] = {}
        self._handles: dict[int, tuple[Inode, str]] = {}
        self._words: dict[str, list[bytes]] = {}
        self._next_handle = 3
        self._lock = threading.Lock()  # makes operations atomic for background threads, too

    # -- for tests -------------------------------------------------------------------------

    @classmethod
    def of_files(cls, files: dict[str, bytes]) -> SimDisk:
        """Return a disk with these files, all durable."""
        disk = cls()
        for path, content in files.items():
            directory, name = _split(path)
            inode = Inode(bytearray(content), content)
            for each in _with_parents(directory):
                disk._directories.setdefault(each, SimDirectory())
            parent = disk._directories[directory]
            parent.entries[name] = parent.durable[name] = inode
        return disk

    def files(self) -> dict[str, bytes]:
        """Return every file as programs see it now, which `kill -9` would leave."""
        return {
            f"{path}/{name}": bytes(inode.data)
            for path, directory in self._directories.items()
            for name, inode in directory.entries.items()
        }

    def kill(self) -> SimDisk:
        """Return the disk after the process was killed, without a power loss."""
        with self._lock:
            files = self.files()
            words = {path: versions[-1:] for path, versions in self._words.items()}
        disk = SimDisk.of_files(files)
        disk._words = words
        return disk

    @_atomic
    def crash_files(self, choose: Choose) -> dict[str, bytes]:
        """Return the files that a power loss now could leave, selected by `choose`."""
        contents: dict[int, bytes] = {}
        files: dict[str, bytes] = {}
        directories = self._directories.items()
        lost = {path for path, each in directories if not each.on_disk and not choose(2)}
        for path, directory in directories:
            if lost.intersection(_with_parents(path)):
                continue
            entries = dict(directory.durable)
            for change in directory.changes:
                if choose(2):
                    apply_entry(entries, change)
            for name, inode in entries.items():
                if id(inode) not in contents:
                    contents[id(inode)] = survivor(inode, choose)
                files[f"{path}/{name}"] = contents[id(inode)]
        return files

    def crash(self, choose: Choose) -> SimDisk:
        """Return the disk after a power loss now, with outcomes selected by `choose`."""
        disk = SimDisk.of_files(self.crash_files(choose))
        for path in self._directories:
            if all(self._directories[each].on_disk for each in _with_parents(path)):
                disk._directories.setdefault(path, SimDirectory())
        for path, versions in self._words.items():
            survivor = choose(len(versions) + 1)
            if survivor:
                disk._words[path] = [versions[survivor - 1]]
        return disk

    def used_bytes(self) -> int:
        directories = list(self._directories.values())  # a copy: other threads may change it
        inodes = {id(i): i for d in directories for i in list(d.entries.values())}
        return sum(len(inode.data) for inode in inodes.values())

    # -- files -------------------------------------------------------------------------------

    @_atomic
    def open(self, path: str, *, write: bool = False, create: bool = False) -> int:
        self._begin("open", path)
        directory, name = self._locate(path)
        inode = directory.entries.get(name)
        if inode is None:
            if not create:
                raise FileNotFoundError(errno.ENOENT, "no such file", path)
            inode = Inode()
            directory.entries[name] = inode
            directory.changes.append(("set", name, "", inode))
        handle, self._next_handle = self._next_handle, self._next_handle + 1
        self._handles[handle] = (inode, path)
        return handle

    @_atomic
    def close(self, handle: int) -> None:
        inode, _ = self._handles.pop(handle)
        inode.locks.pop(handle, None)

    def pread(self, handle: int, size: int, offset: int, *, wait: bool = True) -> bytes:
        return bytes(self._handles[handle][0].data[offset : offset + size])

    @_atomic
    def pwrite(self, handle: int, parts: Sequence[bytes], offset: int) -> int:
        inode, path = self._handles[handle]
        self._begin("pwrite", path)
        content = b"".join(parts)
        if self.short_write is not None:
            content = content[: self.short_write(len(content))]
        content = content[: self._writable(inode, offset, len(content))]
        if len(inode.data) < offset + len(content):
            inode.data.extend(bytes(offset + len(content) - len(inode.data)))
        inode.data[offset : offset + len(content)] = content
        inode.changes.append((WRITE, offset, content))
        self._end("pwrite")
        return len(content)

    @_atomic
    def fdatasync(self, handle: int) -> None:
        inode, path = self._handles[handle]
        try:
            self._begin("fdatasync", path)
        except InterruptedError:
            raise
        except OSError:
            inode.doubtful.extend(inode.changes)
            inode.changes.clear()
            raise
        if not self.sync_lies and not inode.doubtful:
            inode.durable = bytes(inode.data)
            inode.changes.clear()
        elif not self.sync_lies:
            survivor = bytearray(inode.durable)
            for change in inode.changes:
                apply_change(survivor, change)
            inode.durable = bytes(survivor)
            inode.changes.clear()
        self._end("fdatasync")

    @_atomic
    def allocate(self, handle: int, offset: int, size: int) -> None:
        inode, path = self._handles[handle]
        self._begin("allocate", path)
        if self._writable(inode, offset, size) < size:
            raise OSError(errno.ENOSPC, "no space left on device", path)
        inode.data.extend(bytes(max(0, offset + size - len(inode.data))))
        inode.changes.append((ALLOCATE, offset + size, b""))
        self._end("allocate")

    @_atomic
    def truncate(self, handle: int, size: int) -> None:
        inode, path = self._handles[handle]
        self._begin("truncate", path)
        apply_change(inode.data, (TRUNCATE, size, b""))
        inode.changes.append((TRUNCATE, size, b""))
        self._end("truncate")

    def size(self, handle: int) -> int:
        return len(self._handles[handle][0].data)

    def map(self, handle: int, size: int) -> bytes:
        return bytes(self._handles[handle][0].data[:size])

    def lock(self, handle: int, *, exclusive: bool) -> bool:
        inode = self._handles[handle][0]
        others = [kind for holder, kind in inode.locks.items() if holder != handle]
        if any(others) or (exclusive and others):
            return False
        inode.locks[handle] = exclusive
        return True

    # -- directories -------------------------------------------------------------------------

    @_atomic
    def rename(self, old: str, new: str) -> None:
        self._begin("rename", old)
        source, name = self._locate(old)
        target, new_name = self._locate(new)
        if name not in source.entries:
            raise FileNotFoundError(errno.ENOENT, "no such file", old)
        inode = source.entries.pop(name)
        target.entries[new_name] = inode
        if source is target:
            source.changes.append(("move", name, new_name, inode))
        else:
            source.changes.append(("del", name, "", inode))
            target.changes.append(("set", new_name, "", inode))
        self._end("rename")

    @_atomic
    def link(self, old: str, new: str) -> None:
        self._begin("link", new)
        source, name = self._locate(old)
        target, new_name = self._locate(new)
        inode = source.entries[name]
        if new_name in target.entries:
            raise FileExistsError(errno.EEXIST, "file exists", new)
        target.entries[new_name] = inode
        target.changes.append(("set", new_name, "", inode))
        self._end("link")

    @_atomic
    def unlink(self, path: str) -> None:
        self._begin("unlink", path)
        directory, name = self._locate(path)
        if name not in directory.entries:
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        directory.changes.append(("del", name, "", directory.entries.pop(name)))
        self._end("unlink")

    @_atomic
    def make_directory(self, path: str) -> None:
        self._begin("make_directory", path)
        for each in _with_parents(path):
            self._directories.setdefault(each, SimDirectory(on_disk=False))
        self._end("make_directory")

    @_atomic
    def names(self, path: str) -> list[str]:
        if path not in self._directories:
            raise FileNotFoundError(errno.ENOENT, "no such directory", path)
        return sorted(self._directories[path].entries)

    @_atomic
    def sync_directory(self, path: str) -> None:
        self._begin("sync_directory", path)
        if not self.sync_lies:
            directory = self._directories.get(path)
            if directory is not None:
                directory.durable = dict(directory.entries)
                directory.changes.clear()
            for child, inner in self._directories.items():
                if (_split(child)[0] or ".") == (path or "."):
                    inner.on_disk = True
        self._end("sync_directory")

    def free_bytes(self, path: str) -> int:
        return 1 << 40 if self.capacity_bytes is None else self.capacity_bytes - self.used_bytes()

    def shared_word(self, path: str, *, write: bool) -> SimWord:
        if path not in self._words:
            if not write:
                raise FileNotFoundError(errno.ENOENT, "no such file", path)
            self._words[path] = [bytes(16)]
        return SimWord(self._words[path])

    # -- internals ---------------------------------------------------------------------------

    def _begin(self, operation: str, path: str) -> None:
        if self.before is not None:
            with self._unlocked():
                self.before(operation, path)

    def _end(self, operation: str) -> None:
        if self.after is not None:
            with self._unlocked():
                self.after(operation)

    @contextmanager
    def _unlocked(self) -> Iterator[None]:
        """Release the lock: the hooks of a test may wait for another thread's operation."""
        self._lock.release()
        try:
            yield
        finally:
            self._lock.acquire()

    def _locate(self, path: str) -> tuple[SimDirectory, str]:
        directory, name = _split(path)
        if directory not in self._directories:
            raise FileNotFoundError(errno.ENOENT, "no such directory", directory)
        return self._directories[directory], name

    def _writable(self, inode: Inode, offset: int, size: int) -> int:
        """Return how much of a write at `offset` fits on the disk; raise if nothing does."""
        if self.capacity_bytes is None:
            return size
        fits = self.capacity_bytes - self.used_bytes() + len(inode.data) - offset
        if fits <= 0 < size:
            raise OSError(errno.ENOSPC, "no space left on device")
        return min(size, fits)


class SimWord:
    """Shared memory: a process sees the last value, a crash leaves any of the recent ones."""

    def __init__(self, versions: list[bytes]) -> None:
        self._versions = versions

    def get(self) -> bytes:
        return self._versions[-1]

    def set(self, value: bytes) -> None:
        self._versions.append(value)
        del self._versions[:-4]

    def close(self) -> None:
        pass


def _split(path: str) -> tuple[str, str]:
    directory, _, name = path.rpartition("/")
    return directory, name


def _with_parents(path: str) -> list[str]:
    """Return a directory and its parents, from the top down."""
    return [*(_with_parents(_split(path)[0]) if "/" in path[1:] else ()), path]
