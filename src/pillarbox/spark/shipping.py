"""Sends Python modules to executors that can't import them from this machine's path.

Spark pickles functions and types by reference to their modules, so executors must be able to
import these. Only pure Python is sent: the compiled dependencies of Pillarbox (msgspec, pyarrow,
google-crc32c) must be installed on the executors.
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
    """Return whether tasks run in processes that the driver starts on its own machine."""
    return master is not None and (master == "local" or master.startswith("local["))


def is_connect(master: str) -> bool:
    """Return whether a master URL is that of a Spark Connect server."""
    return master.startswith("sc://")


def ship(spark: Any, modules: Iterable[str]) -> None:
    """Make top-level modules importable wherever this session runs Python."""
    remote = is_remote(spark)
    if not remote and is_local(spark.sparkContext.master):
        return
    directory = tempfile.mkdtemp(prefix="pillarbox-")
    # Executors fetch the files when they start, at any time during the session.
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    files = list(archives(modules, directory))
    if remote:
        spark.addArtifacts(*files, pyfile=True)
    else:
        _add(spark.sparkContext, files)


def is_remote(spark: Any) -> bool:
    """Return whether a session uses Spark Connect, and so has no SparkContext here."""
    return not hasattr(spark, "_jsparkSession")


def master_of(spark: Any) -> str:
    """Return the master URL of a session."""
    return f"sc://{spark.client.host}" if is_remote(spark) else str(spark.sparkContext.master)


def _add(context: Any, files: Iterable[str]) -> None:
    added = {os.path.basename(url) for url in context.listFiles}
    for file in files:
        if os.path.basename(file) not in added:
            context.addPyFile(file)
            # Processes that plan a stream on the driver look only here.
            paths = (context.environment.get("PYTHONPATH"), file)
            context.environment["PYTHONPATH"] = os.pathsep.join(filter(None, paths))


def archives(modules: Iterable[str], directory: str) -> Iterator[str]:
    """Yield a file for each module: the module itself, or a zip of the package."""
    for name in sorted(modules):
        module = sys.modules[name]
        if hasattr(module, "__path__"):
            yield _zipped(name, module.__path__, f"{directory}/{name}.zip")
        elif (file := getattr(module, "__file__", None) or "").endswith(".py"):
            yield os.path.abspath(file)


def _zipped(name: str, roots: Iterable[str], archive: str) -> str:
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as zip_file:
        for root in dict.fromkeys(map(os.path.realpath, roots)):
            for path in sorted(Path(root).rglob("*")):
                if path.is_file() and path.suffix != ".pyc":
                    zip_file.write(path, f"{name}/{os.path.relpath(path, root)}")
    return archive
