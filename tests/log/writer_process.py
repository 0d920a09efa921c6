"""A process that appends under load until it is killed; it prints each confirmed index.

python -m tests.log.writer_process PATH DURABILITY THREADS
"""

from __future__ import annotations

import os
import sys
import threading

from pillarbox.log import Durability, Log


def record_of(name: int, number: int) -> bytes:
    """A record that says what it must be, so that a reader can check it alone."""
    return (b"%d:%d:" % (name, number)).ljust(40 + number * 7 % 400, b"x")


def produce(log: Log, name: int) -> None:
    number = 0
    while True:
        index = log.append(record_of(name, number))
        os.write(1, b"%d %d %d\n" % (index, name, number))
        number += 1


def main(path: str, durability: Durability, threads: int) -> None:
    log = Log.open(path, durability=durability, segment_bytes=65536)
    for name in range(1, threads):
        threading.Thread(target=produce, args=(log, name), daemon=True).start()
    produce(log, 0)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))  # type: ignore[arg-type]
