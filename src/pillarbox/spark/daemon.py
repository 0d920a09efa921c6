"""Spark's daemon that forks Python workers, with the data source already imported.

Spark starts a Python process for each plan, commit and task, and each of them would import the
same modules. `session` configures this module as the daemon if workers are sure to find it.
"""

from __future__ import annotations

import gc
import os
import pkgutil
import zipimport
from collections.abc import Iterator
from typing import Any

from pyspark import daemon

import pillarbox.spark.source  # noqa: F401 - imported once, for all that are forked
from pillarbox.spark import fork_server

_pkgutil: Any = pkgutil  # the type stubs leave out what lists the modules of a zip
_worker = daemon.worker


def main() -> None:
    """Run Spark's daemon of Python workers."""
    # Workers run the garbage collector after each task; exempt the imported modules from it.
    gc.freeze()
    _pkgutil.iter_importer_modules.register(zipimport.zipimporter, _modules_of_zip)
    if (path := os.environ.get(fork_server.SOCKET)) is not None:
        fork_server.start(path)
    daemon.worker = worker_until_closed
    daemon.manager()


def worker_until_closed(sock: Any, authenticated: bool) -> int:
    """Serve tasks until Spark closes the connection, without printing that as an error."""
    try:
        return int(_worker(sock, authenticated))
    except BrokenPipeError:
        # Here, while the files of the connection are alive: Python 3.13 prints that it can't
        # flush them when they are freed.
        os._exit(1)


def _modules_of_zip(
    importer: zipimport.zipimporter, prefix: str = ""
) -> Iterator[tuple[str, bool]]:
    """Yield the modules of a zip on the path, after Spark has invalidated its caches.

    Python 3.13 can't list them (gh-121342) until something was looked up in the zip.
    """
    importer.find_spec("pillarbox")
    yield from _pkgutil.iter_zipimport_modules(importer, prefix)


if __name__ == "__main__":
    main()
