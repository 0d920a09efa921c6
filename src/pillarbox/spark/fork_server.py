"""Forks the processes of streaming sources, which takes a tenth of the time of starting Python.

Spark starts a Python process for each source of a query, which imports PySpark again. The worker
daemon has already imported everything, so a child of it listens for requests on a socket next to
the Python wrapper script (see `python`). The script runs `fork_client`, which sends the request
and lives as long as the forked process. If nothing answers on the socket, it executes the command
that Spark wanted to run.
"""

from __future__ import annotations

import json
import os
import runpy
import select
import signal
import socket
import sys
import threading
import traceback
from typing import Any, NoReturn

from pillarbox.spark.fork_client import LENGTH_BYTES, STREAMS

#: The environment variable with the path of the socket.
SOCKET = "PILLARBOX_FORK_SOCKET"
RUNNER = "pyspark.sql.streaming.python_streaming_source_runner"


def start(path: str) -> None:
    """Serve on a socket at this path, in a child process that ends with this one."""
    child_end, parent_end = os.pipe()
    if os.fork():
        os.close(child_end)  # `parent_end` is closed when this process ends
        return
    os.close(parent_end)
    try:
        _serve(path, child_end)
    finally:
        os._exit(1)


def _serve(path: str, parent: int) -> None:
    import deltalake  # noqa: F401, PLC0415 - import these once, for all sources
    import pyarrow.parquet  # noqa: F401, PLC0415
    import pyspark.sql.streaming.python_streaming_source_runner  # noqa: F401, PLC0415

    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # children are reaped automatically
    with socket.socket(socket.AF_UNIX) as listener:
        temporary = f"{path}.{os.getpid()}"
        listener.bind(temporary)
        listener.listen()
        os.replace(temporary, path)  # visible only once it accepts connections
        waiting: list[Any] = [listener, parent]
        while parent not in select.select(waiting, [], [])[0]:
            connection, _ = listener.accept()
            if os.fork() == 0:
                listener.close()
                _run(connection)
            connection.close()
        os.unlink(path)


def _run(connection: socket.socket) -> NoReturn:
    """Run the module that a client requested, and exit."""
    code = 1
    try:
        code = _run_module(_receive_request(connection))
        connection.sendall(bytes([code & 0xFF]))
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _receive_request(connection: socket.socket) -> str:
    """Read a request, adopt the client's streams and environment, and return the module."""
    head, streams, _, _ = socket.recv_fds(connection, LENGTH_BYTES, len(STREAMS))
    with connection.makefile("rb") as file:
        request = file.read(int.from_bytes(head))
    module, arguments, environment, directory = json.loads(request)
    for stream, number in zip(streams, STREAMS, strict=True):
        os.dup2(stream, number)
        os.close(stream)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(directory)
    sys.argv = [module, *arguments]
    present = set(sys.path)
    paths = environment.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[1:1] = [each for each in paths if each and each not in present]
    threading.Thread(target=_exit_with, args=[connection], daemon=True).start()
    return str(module)


def _exit_with(connection: socket.socket) -> None:
    """Exit when the client exits, because Spark has killed it."""
    connection.recv(1)
    os._exit(1)


def _run_module(module: str) -> int:
    sys.modules.pop(module, None)  # else runpy warns that it is already imported
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except Exception:  # noqa: BLE001 - print any error, as Python does on exit
        traceback.print_exc()
        return 1
    return 0
