"""Starts the processes of streaming sources by a fork, in a tenth of the time.

Spark starts a Python of its own for each source of a query, and lets it import PySpark anew. The
daemon of the workers has imported all of that: a child of it waits for such requests at a socket
beside the script that stands in for Python (see `python`). That script runs `fork_client`, which
hands the request over and lives as long as the forked process does. If nobody answers at the
socket, it becomes the Python that Spark asked for.
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
    """Serve at this path, in a process that ends with this one."""
    ours, theirs = os.pipe()
    if os.fork():
        os.close(ours)  # the other end is closed when this process ends
        return
    os.close(theirs)
    try:
        _serve(path, ours)
    finally:
        os._exit(1)


def _serve(path: str, parent: int) -> None:
    import deltalake  # noqa: F401, PLC0415 - each of these is imported once, for all sources
    import pyarrow.parquet  # noqa: F401, PLC0415
    import pyspark.sql.streaming.python_streaming_source_runner  # noqa: F401, PLC0415

    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for them
    with socket.socket(socket.AF_UNIX) as listener:
        own = f"{path}.{os.getpid()}"
        listener.bind(own)
        listener.listen()
        os.replace(own, path)  # whoever finds it is answered
        waiting: list[Any] = [listener, parent]
        while parent not in select.select(waiting, [], [])[0]:
            connection, _ = listener.accept()
            if os.fork() == 0:
                listener.close()
                _run(connection)
            connection.close()
        os.unlink(path)


def _run(connection: socket.socket) -> NoReturn:
    """Run the module that a client asked for, and exit."""
    code = 1
    try:
        code = _run_module(_take_request(connection))
        connection.sendall(bytes([code & 0xFF]))
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _take_request(connection: socket.socket) -> str:
    """Read a request, and adopt the streams and the environment of the client; the module."""
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
    known = set(sys.path)
    paths = environment.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[1:1] = [each for each in paths if each and each not in known]
    threading.Thread(target=_end_with, args=[connection], daemon=True).start()
    return str(module)


def _end_with(connection: socket.socket) -> None:
    """Exit when the client exits: Spark has ended it."""
    connection.recv(1)
    os._exit(1)


def _run_module(module: str) -> int:
    sys.modules.pop(module, None)  # else it warns that the module was imported before
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except Exception:  # noqa: BLE001 - as at the end of a program
        traceback.print_exc()
        return 1
    return 0
