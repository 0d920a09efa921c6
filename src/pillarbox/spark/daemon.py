"""Spark's daemon, from which it forks Python workers, with the data source imported.

Spark starts a Python process for each plan, each commit and each task, and would have all of
them import the same modules. `session` names this module to Spark where it can be sure that
workers find it.
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
    # Workers collect garbage after each task; what was imported here is none.
    gc.freeze()
    if (path := os.environ.get(fork_server.SOCKET)) is not None:
        fork_server.start(path)
    daemon.worker = worker_until_closed
    daemon.manager()


def worker_until_closed(sock: Any, authenticated: bool) -> int:
    """Serve tasks until Spark closes the connection, which is not an error to print."""
    try:
        return int(_worker(sock, authenticated))
    except BrokenPipeError:
        return 1


if __name__ == "__main__":
    main()
