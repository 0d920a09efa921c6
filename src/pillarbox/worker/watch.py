"""Notices when the Python files below a directory change, for `--watch`: for development only."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

_LOOK_SECONDS = 0.5
_SKIPPED = frozenset({"__pycache__", "node_modules", "site-packages"})


def snapshot(directory: Path) -> dict[str, int]:
    """When each Python file was last changed."""
    found: dict[str, int] = {}
    for place, folders, files in os.walk(directory):
        folders[:] = [name for name in folders if not name.startswith(".") and name not in _SKIPPED]
        for name in files:
            if name.endswith(".py"):
                path = os.path.join(place, name)
                try:
                    found[path] = os.stat(path).st_mtime_ns
                except FileNotFoundError:
                    continue  # gone since it was listed
    return found


@contextmanager
def watching(directory: Path, changed: Callable[[], object]) -> Iterator[None]:
    """Call `changed` after each change, meanwhile."""
    ended = threading.Event()

    def look() -> None:
        before = snapshot(directory)
        while not ended.wait(_LOOK_SECONDS):
            now = snapshot(directory)
            if now != before:
                before = now
                changed()

    thread = threading.Thread(target=look, name="pillarbox-watch", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
