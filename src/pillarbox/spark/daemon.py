"""Spark's daemon that forks Python workers, with the data source already imported.

Spark starts a Python process for each plan, commit and task, and each of them would import the
same modules. `session` configures this module as the daemon if workers are sure to find it.
"""

from __future__ import annotations

import gc
import os
from typing import Any

from pyspark import daemon

import pillarbox.spark.source  # noqa: F401 - imported once, for all that are forked
from pillarbox.spark import fork_server

_worker = daemon.worker


def main() -> None:
    """Run Spark's daemon of Python workers."""
    # Workers run the garbage collector after each task; exempt the imported modules from it.
    gc.freeze()
    if (path := os.environ.get(fork_server.SOCKET)) is not None:
        fork_server.start(path)
    daemon.worker = worker_until_closed
    daemon.manager()


def worker_until_closed(sock: Any, authenticated: bool) -> int:
    """Serve tasks until Spark closes the connection, without printing that as an error."""
    try:
        return int(_worker(sock, authenticated))
    except BrokenPipeError:
        return 1


if __name__ == "__main__":
    main()
