"""Creates wrapper scripts for programs, in the user's cache directory.

The name of a script depends on the program that it starts, so the script is reused.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path


def script(kind: str, program: str, path: str, text: str) -> str:
    """Create an executable script as `path` in a directory for the program; return that."""
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    name = hashlib.sha256(program.encode()).hexdigest()[:16]
    home = Path(cache) / "pillarbox" / f"{kind}-{name}"
    file = home / path
    if not file.exists() or file.read_text("utf-8") != text:
        file.parent.mkdir(parents=True, exist_ok=True)
        temporary = file.with_name(f"{file.name}.{os.getpid()}")
        temporary.write_text(text, "utf-8")
        temporary.chmod(0o755)
        temporary.replace(file)
    return str(home)
