"""Gets a pipeline's own code to executors that don't share this machine's files.

What Spark pickles names functions and types by their modules, so the executors must be able to
import these, and Pillarbox. What Pillarbox itself needs (msgspec, pyarrow, google-crc32c) is
compiled, and must be installed there.
"""

from __future__ import annotations

import os
import sys
import tempfile
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from pillarbox.pipeline.graph import Graph
from pillarbox.pipeline.references import main_file

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_OWN = "pillarbox"


def ship(spark: SparkSession, graph: Graph) -> None:
    """Make the modules of a pipeline, and Pillarbox, importable on every executor."""
    master = spark.sparkContext.master or ""
    if master == "local" or master.startswith("local["):
        return
    for file in archives({_OWN, *modules_of(graph)}, tempfile.mkdtemp(prefix="pillarbox-")):
        spark.sparkContext.addPyFile(file)


def modules_of(graph: Graph) -> Iterator[str]:
    """The top-level modules that the functions and body types of a graph come from."""
    named = [each.function for each in graph.processors] + [log.body_type for log in graph.logs]
    for each in named:
        top = (getattr(each, "__module__", None) or "").partition(".")[0]
        if top and top not in sys.stdlib_module_names:
            yield top


def archives(modules: Iterable[str], directory: str) -> Iterator[str]:
    """A file for each module: itself, or a zip of the package."""
    for name in sorted(modules):
        module = sys.modules[name]
        if not hasattr(module, "__path__"):
            file = main_file() if name == "__main__" else module.__file__
            if file is not None:
                yield file
            continue
        archive = f"{directory}/{name}.zip"
        with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as packed:
            for root in module.__path__:
                for path in sorted(Path(root).rglob("*")):
                    if path.is_file() and path.suffix != ".pyc":
                        packed.write(path, f"{name}/{os.path.relpath(path, root)}")
        yield archive
