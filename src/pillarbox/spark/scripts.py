"""Shell scripts of ours that stand in for a program, in the user's cache directory.

A script is named by what it starts, so that it is the same file the next time.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path


def script(kind: str, program: str, path: str, text: str) -> str:
    """An executable script, as `path` below a directory for this program; that directory."""
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    name = hashlib.sha256(program.encode()).hexdigest()[:16]
    home = Path(cache) / "pillarbox" / f"{kind}-{name}"
    file = home / path
    if not file.exists() or file.read_text("utf-8") != text:
        file.parent.mkdir(parents=True, exist_ok=True)
        made = file.with_name(f"{file.name}.{os.getpid()}")
        made.write_text(text, "utf-8")
        made.chmod(0o755)
        made.replace(file)
    return str(home)
