"""References to the functions and types of a pipeline that workers can load.

Objects in `__main__` would be pickled by value, which does not work for a `Struct`. A worker
imports the program's file as a module instead; code under `if __name__ == "__main__"` does not
run there. If a worker can't import the pipeline's modules, their files are sent with the object
(`Carried`).
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import operator
import os
import shutil
import sys
import sysconfig
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from pillarbox.pipeline.graph import Graph
from pillarbox.spark.shipping import archives

_MAIN = "__main__"


@dataclass(frozen=True, slots=True)
class Reference:
    """A module and the qualified name of an object in it."""

    module: str
    name: str
    directory: str


@dataclass(frozen=True, slots=True)
class Carried:
    """A pickled object and the files of the modules that it needs."""

    packed: bytes
    files: Mapping[str, bytes]


def main_file() -> str | None:
    """Return the file of the running program, or None if it is not a Python file."""
    file = getattr(sys.modules[_MAIN], "__file__", None)
    return os.path.abspath(file) if file is not None and file.endswith(".py") else None


def reference_to(thing: Any) -> Any:
    """Return a reference to an object of `__main__`; any other object is returned as is."""
    name, file = getattr(thing, "__qualname__", "<"), main_file()
    if getattr(thing, "__module__", None) != _MAIN or "<" in name or file is None:
        return thing
    return Reference(Path(file).stem, name, os.path.dirname(file))


def files_of(modules: Iterable[str]) -> dict[str, bytes]:
    """Return the files with which these modules can be imported elsewhere."""
    with tempfile.TemporaryDirectory() as directory:
        paths = map(Path, archives(modules, directory))
        return {path.name: path.read_bytes() for path in paths}


def carried(thing: Any, files: Mapping[str, bytes]) -> Carried:
    """Pickle an object, together with the files of its modules."""
    from pyspark import cloudpickle  # noqa: PLC0415 - behind an extra

    packed: bytes = cloudpickle.dumps(reference_to(thing))  # type: ignore[no-untyped-call]
    return Carried(packed, files)


def resolved(thing: Any) -> Any:
    """Return the object that is referenced or carried."""
    if isinstance(thing, Carried):
        return resolved(_unpacked(thing.packed, tuple(thing.files.items())))
    if not isinstance(thing, Reference):
        return thing
    if thing.directory not in sys.path and os.path.isdir(thing.directory):
        sys.path.append(thing.directory)
    return operator.attrgetter(thing.name)(importlib.import_module(thing.module))


@functools.lru_cache(maxsize=256)
def _unpacked(packed: bytes, files: tuple[tuple[str, bytes], ...]) -> Any:
    from pyspark import cloudpickle  # noqa: PLC0415 - behind an extra

    _make_importable(files)
    return cloudpickle.loads(packed)


@functools.cache
def _make_importable(files: tuple[tuple[str, bytes], ...]) -> None:
    """Write the files to a directory on `sys.path`, shared by all processes of the user."""
    digest = hashlib.sha256(repr(files).encode()).hexdigest()[:32]
    directory = f"{tempfile.gettempdir()}/pillarbox-{os.getuid()}-{digest}"
    if not os.path.isdir(directory):
        temporary = tempfile.mkdtemp(prefix="pillarbox-")
        for name, content in files:
            Path(temporary, name).write_bytes(content)
        try:
            os.rename(temporary, directory)
        except OSError:  # another process has written it first
            shutil.rmtree(temporary)
    if os.lstat(directory).st_uid != os.getuid():
        raise PermissionError(f"{directory} was not written by Pillarbox; remove it")
    for name, _ in files:
        sys.path.insert(0, f"{directory}/{name}" if name.endswith(".zip") else directory)


def modules_of(graph: Graph) -> set[str]:
    """Return the top-level modules of a graph's functions and types, and their siblings.

    They are sent to executors, which may lack them. Siblings of installed modules are not.
    """
    named = [each.function for each in graph.processors] + [log.body_type for log in graph.logs]
    tops = {(getattr(each, "__module__", None) or "").partition(".")[0] for each in named}
    modules = {top for top in tops if top and top not in sys.stdlib_module_names}
    directories = {_directory(sys.modules[top]) for top in modules} - _INSTALLED - {None}
    siblings = {
        name
        for name, module in list(sys.modules.items())
        if "." not in name and _directory(module) in directories
    }
    return modules | siblings


_INSTALLED = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}


def _directory(module: ModuleType) -> str | None:
    """Return the directory that contains a top-level module or package."""
    paths = list(getattr(module, "__path__", ())) or [getattr(module, "__file__", None)]
    return os.path.dirname(os.path.abspath(paths[0])) if paths[0] else None
