"""Functions and types of a pipeline, in a form that workers can make them of again.

What is in `__main__` would be pickled by value, which a `Struct` does not survive. A worker
imports the program's file as a module instead; code under `if __name__ == "__main__"` stays out.
Where a worker can't import the pipeline's modules, they are `Carried` along.
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
    """Something that is found in a module again, wherever that is imported."""

    module: str
    name: str
    directory: str


@dataclass(frozen=True, slots=True)
class Carried:
    """Something pickled, and the files of the modules that it is of."""

    packed: bytes
    files: Mapping[str, bytes]


def main_file() -> str | None:
    """The file of the program that was started, if it is one."""
    file = getattr(sys.modules[_MAIN], "__file__", None)
    return os.path.abspath(file) if file is not None and file.endswith(".py") else None


def reference_to(thing: Any) -> Any:
    """A reference if the thing is of the program that was started, else the thing itself."""
    name, file = getattr(thing, "__qualname__", "<"), main_file()
    if getattr(thing, "__module__", None) != _MAIN or "<" in name or file is None:
        return thing
    return Reference(Path(file).stem, name, os.path.dirname(file))


def files_of(modules: Iterable[str]) -> dict[str, bytes]:
    """What has to be carried so that these modules can be imported elsewhere."""
    with tempfile.TemporaryDirectory() as directory:
        paths = map(Path, archives(modules, directory))
        return {path.name: path.read_bytes() for path in paths}


def carried(thing: Any, files: Mapping[str, bytes]) -> Carried:
    """The thing with the modules that it is of."""
    from pyspark import cloudpickle  # noqa: PLC0415 - behind an extra

    packed: bytes = cloudpickle.dumps(reference_to(thing))  # type: ignore[no-untyped-call]
    return Carried(packed, files)


def resolved(thing: Any) -> Any:
    """The thing that is referred to, or carried."""
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
    """Once in a process; all processes of a user on a machine share the same files."""
    digest = hashlib.sha256(repr(files).encode()).hexdigest()[:32]
    place = f"{tempfile.gettempdir()}/pillarbox-{os.getuid()}-{digest}"
    if not os.path.isdir(place):
        made = tempfile.mkdtemp(prefix="pillarbox-")
        for name, content in files:
            Path(made, name).write_bytes(content)
        try:
            os.rename(made, place)
        except OSError:  # another process was quicker
            shutil.rmtree(made)
    if os.lstat(place).st_uid != os.getuid():
        raise PermissionError(f"{place} was not written by Pillarbox; remove it")
    for name, _ in files:
        sys.path.insert(0, f"{place}/{name}" if name.endswith(".zip") else place)


def modules_of(graph: Graph) -> set[str]:
    """The top-level modules of a graph's functions and body types, and those beside them.

    They travel to executors that lack them. What is installed is not taken along.
    """
    named = [each.function for each in graph.processors] + [log.body_type for log in graph.logs]
    tops = {(getattr(each, "__module__", None) or "").partition(".")[0] for each in named}
    found = {top for top in tops if top and top not in sys.stdlib_module_names}
    places = {_directory(sys.modules[top]) for top in found} - _INSTALLED - {None}
    beside = {
        name
        for name, module in list(sys.modules.items())
        if "." not in name and _directory(module) in places
    }
    return found | beside


_INSTALLED = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}


def _directory(module: ModuleType) -> str | None:
    """Where a top-level module or package lies."""
    paths = list(getattr(module, "__path__", ())) or [getattr(module, "__file__", None)]
    return os.path.dirname(os.path.abspath(paths[0])) if paths[0] else None
