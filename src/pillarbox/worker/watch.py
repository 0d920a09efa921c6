"""Detects changed Python files in a directory tree, for `--watch` during development."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

_POLL_SECONDS = 0.5
_SKIPPED = frozenset({"__pycache__", "node_modules", "site-packages"})


def snapshot(directory: Path) -> dict[str, int]:
    """Return the modification time of each Python file in a directory tree."""
    times: dict[str, int] = {}
    for folder, folders, files in os.walk(directory):
        folders[:] = [name for name in folders if not name.startswith(".") and name not in _SKIPPED]
        for name in files:
            if name.endswith(".py"):
                path = os.path.join(folder, name)
                try:
                    times[path] = os.stat(path).st_mtime_ns
                except FileNotFoundError:
                    continue  # deleted since it was listed
    return times


@contextmanager
def on_changes(directory: Path, changed: Callable[[], object]) -> Iterator[None]:
    """Call `changed` after each change, inside the `with` block."""
    ended = threading.Event()

    def poll() -> None:
        before = snapshot(directory)
        while not ended.wait(_POLL_SECONDS):
            now = snapshot(directory)
            if now != before:
                before = now
                changed()

    thread = threading.Thread(target=poll, name="pillarbox-watch", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
