"""Asks for a process of a streaming source, instead of being it: see `fork_server`.

The script that stands in for Python runs this file, so it imports as little as it can.
"""

from __future__ import annotations

import json
import os
import socket
import sys

LENGTH_BYTES = 4
STREAMS = (0, 1, 2)


def hand_over(path: str, command: list[str]) -> int:
    """Have the server fork a process that runs `python -m module ...`; returns its exit code."""
    _, _, module, *arguments = command
    request = json.dumps([module, arguments, dict(os.environ), os.getcwd()]).encode()
    with socket.socket(socket.AF_UNIX) as server:
        try:
            server.connect(path)
            socket.send_fds(server, [len(request).to_bytes(LENGTH_BYTES)], STREAMS)
            server.sendall(request)
        except OSError:
            os.execv(command[0], command)  # noqa: S606 - what Spark asked for
        ended = server.recv(1)
    return ended[0] if ended else 1


if __name__ == "__main__":
    sys.exit(hand_over(sys.argv[1], sys.argv[2:]))
