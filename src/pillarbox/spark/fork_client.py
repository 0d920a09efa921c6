"""Asks `fork_server` to fork the process of a streaming source, instead of starting Python.

The Python wrapper script runs this file, so it imports as little as possible.
"""

from __future__ import annotations

import json
import os
import socket
import sys

LENGTH_BYTES = 4
STREAMS = (0, 1, 2)


def hand_over(path: str, command: list[str]) -> int:
    """Let the server fork a process that runs `python -m module ...`; return its exit code."""
    _, _, module, *arguments = command
    with socket.socket(socket.AF_UNIX) as server:
        try:
            request = json.dumps([module, arguments, dict(os.environ), os.getcwd()]).encode()
            server.connect(path)
            socket.send_fds(server, [len(request).to_bytes(LENGTH_BYTES)], STREAMS)
            server.sendall(request)
        except OSError:
            os.execv(command[0], command)  # noqa: S606 - the command that Spark wants to run
        exit_code = server.recv(1)
    return exit_code[0] if exit_code else 1


if __name__ == "__main__":
    sys.exit(hand_over(sys.argv[1], sys.argv[2:]))
