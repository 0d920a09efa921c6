"""Where the benchmarks write: a directory on a real disk, removed afterwards."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import mkdtemp

from bench.harness import UnavailableError

WORK = Path(__file__).parents[1] / "work"
_IN_MEMORY = ("tmpfs", "ramfs", "devtmpfs")


@contextmanager
def work_directory() -> Iterator[Path]:
    """An empty directory. In memory a sync costs nothing, so there nothing is measured."""
    WORK.mkdir(exist_ok=True)
    if file_system(WORK) in _IN_MEMORY:
        raise UnavailableError(f"{WORK} is in memory, not on a disk")
    path = Path(mkdtemp(dir=WORK))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def file_system(path: Path) -> str:
    """The type of the file system that holds `path`; empty if the system does not say."""
    try:
        lines = Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines()
    except OSError:
        return ""
    place = path.resolve()
    mounts = [(Path(line.split()[1]), line.split()[2]) for line in lines]
    holding = [(len(at.parts), kind) for at, kind in mounts if place.is_relative_to(at)]
    return max(holding, default=(0, ""))[1]


def disk_bytes(path: Path) -> int:
    """The room that all files below `path` take on disk."""
    return sum(each.stat().st_blocks * 512 for each in path.rglob("*") if each.is_file())


def forget_pages(path: Path) -> None:
    """Write the files below `path` out and drop them from the page cache, where one can."""
    for each in filter(Path.is_file, path.rglob("*")):
        handle = os.open(each, os.O_RDONLY)
        try:
            os.fsync(handle)
            if hasattr(os, "posix_fadvise"):
                os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(handle)
