"""A process that has a store open and sends to it until it is killed.

python -m tests.cli.writer_process PATH
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from tests.cli.support import fill


def main(path: str) -> None:
    notes = fill(Path(path), leave_open=True)[1]
    print("ready", flush=True)
    while True:
        notes.send("tick")
        time.sleep(0.005)


if __name__ == "__main__":
    main(sys.argv[1])
