"""Functions and types of the program that was started, by name, so that workers find them.

What is in `__main__` would be pickled by value, which a `Struct` does not survive. A worker
imports the program's file as a module instead; code under `if __name__ == "__main__"` stays out.
"""

from __future__ import annotations

import importlib
import operator
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_MAIN = "__main__"


@dataclass(frozen=True, slots=True)
class Reference:
    """Something that is found in a module again, wherever that is imported."""

    module: str
    name: str
    directory: str


def main_file() -> str | None:
    """The file of the program that was started, if it is one."""
    file = getattr(sys.modules[_MAIN], "__file__", None)
    return os.path.abspath(file) if file is not None and file.endswith(".py") else None


def referring(thing: Any) -> Any:
    """A reference if the thing is of the program that was started, else the thing itself."""
    name, file = getattr(thing, "__qualname__", "<"), main_file()
    if getattr(thing, "__module__", None) != _MAIN or "<" in name or file is None:
        return thing
    return Reference(Path(file).stem, name, os.path.dirname(file))


def resolved(thing: Any) -> Any:
    """The thing that is referred to."""
    if not isinstance(thing, Reference):
        return thing
    if thing.directory not in sys.path and os.path.isdir(thing.directory):
        sys.path.append(thing.directory)
    return operator.attrgetter(thing.name)(importlib.import_module(thing.module))
