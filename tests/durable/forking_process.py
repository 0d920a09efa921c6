"""A process that opens something, forks a child that lives on, and then waits to be killed.

python -m tests.durable.forking_process WHAT PATH [--keep]: WHAT is store, log, run or batch; with
--keep the child keeps what it inherits, as it would without our protection. Prints the child's pid.
"""

from __future__ import annotations

import os
import signal
import sys

from pillarbox import DurableMailbox
from pillarbox.log import Log, disk
from pillarbox.pipeline.paths import Paths
from pillarbox.pipeline.running import RunLock, batch_for_run


def opened(what: str, path: str) -> object:
    if what == "store":
        box = DurableMailbox("box", str, path=path)
        box.send("sent before the fork")
        return box
    if what == "log":
        log = Log.open(path)
        log.append(b"written before the fork")
        return log
    run = RunLock(Paths(path))
    if what == "batch":
        batch = batch_for_run(Paths(path), run.token)
        batch.__enter__()
        return run, batch
    return run


def main(what: str, path: str, *flags: str) -> None:
    held = opened(what, path)
    if flags:
        disk._not_for_children.clear()
    child = os.fork()
    if child == 0:
        os.write(1, b"%d\n" % os.getpid())
        os.close(1)
    signal.pause()
    assert held


if __name__ == "__main__":
    main(*sys.argv[1:])
