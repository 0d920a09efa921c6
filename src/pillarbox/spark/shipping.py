"""Gets Python code to where a session runs it, if that is not this machine with its own path.

What Spark pickles names functions and types by their modules, so executors must be able to
import these. Only pure Python travels: what Pillarbox needs beside it (msgspec, pyarrow,
google-crc32c) is compiled, and must be installed there.
"""

from __future__ import annotations

import atexit
import os
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

OWN = "pillarbox"


def is_local(master: str | None) -> bool:
    """Whether tasks run on the driver's machine, as processes that it starts itself."""
    return master is not None and (master == "local" or master.startswith("local["))


def is_connect(master: str) -> bool:
    """Whether it names a server of Spark Connect, whose settings were made at its start."""
    return master.startswith("sc://")


def ship(spark: Any, modules: Iterable[str]) -> None:
    """Make top-level modules importable wherever this session runs Python; once for each."""
    remote = is_remote(spark)
    if not remote and is_local(spark.sparkContext.master):
        return
    directory = tempfile.mkdtemp(prefix="pillarbox-")
    # Executors ask for the files as they come up, for as long as the session lives.
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    files = list(archives(modules, directory))
    if remote:
        spark.addArtifacts(*files, pyfile=True)
    else:
        _add(spark.sparkContext, files)


def is_remote(spark: Any) -> bool:
    """Whether it is a session of Spark Connect, which has no context of its own here."""
    return not hasattr(spark, "_jsparkSession")


def master_of(spark: Any) -> str:
    """Where a session runs, as `session` would be told."""
    return f"sc://{spark.client.host}" if is_remote(spark) else str(spark.sparkContext.master)


def _add(context: Any, files: Iterable[str]) -> None:
    there = {os.path.basename(url) for url in context.listFiles}
    for file in files:
        if os.path.basename(file) not in there:
            context.addPyFile(file)
            # The processes that plan a stream beside the driver look nowhere else.
            paths = (context.environment.get("PYTHONPATH"), file)
            context.environment["PYTHONPATH"] = os.pathsep.join(filter(None, paths))


def archives(modules: Iterable[str], directory: str) -> Iterator[str]:
    """A file for each module: itself, or a zip of the package."""
    for name in sorted(modules):
        module = sys.modules[name]
        if hasattr(module, "__path__"):
            yield _zipped(name, module.__path__, f"{directory}/{name}.zip")
        elif (file := getattr(module, "__file__", None) or "").endswith(".py"):
            yield os.path.abspath(file)


def _zipped(name: str, roots: Iterable[str], archive: str) -> str:
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as packed:
        for root in dict.fromkeys(map(os.path.realpath, roots)):
            for path in sorted(Path(root).rglob("*")):
                if path.is_file() and path.suffix != ".pyc":
                    packed.write(path, f"{name}/{os.path.relpath(path, root)}")
    return archive
