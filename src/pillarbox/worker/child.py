"""One process of `pillarbox worker`: runs a worker and reports to its supervisor.

python -m pillarbox.worker.child OPTIONS REPORTS

OPTIONS is JSON. REPORTS is a file descriptor that takes a line of JSON now and then. When standard
input ends the supervisor is gone, and the process drains as if it had been told to.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
import threading
from dataclasses import replace
from typing import Any

from pillarbox.core.errors import InvalidParameterError, MailboxError
from pillarbox.mailbox.local import LocalMailbox
from pillarbox.worker.decorators import WorkerFunction, WorkerOptions, make_worker
from pillarbox.worker.engine import Worker
from pillarbox.worker.handler import load
from pillarbox.worker.signals import run_until_signalled

REPORT_SECONDS = 0.25
MISCONFIGURED = 3  # exit code: to start it again would change nothing
_HERE_ONLY = ("memory:", "file:")


class Reports:
    """Tells the supervisor how the worker is doing, whenever that has changed."""

    def __init__(self, handle: int) -> None:
        self._handle = handle
        self._ended = threading.Event()

    def tell(self, **facts: Any) -> None:
        """One line; short enough to be written whole."""
        try:
            os.write(self._handle, json.dumps(facts).encode() + b"\n")
        except BrokenPipeError:
            return  # the supervisor is gone; standard input has ended as well

    def follow(self, worker: Worker[Any]) -> threading.Thread:
        """Report on this worker until `end`."""
        thread = threading.Thread(target=self._follow, args=(worker,), daemon=True)
        thread.start()
        return thread

    def end(self) -> None:
        """The last report has been made."""
        self._ended.set()

    def _follow(self, worker: Worker[Any]) -> None:
        while True:
            over = self._ended.wait(REPORT_SECONDS)
            self.tell(
                queue=worker.mailbox.name,
                done=worker.done,
                failed=worker.failed,
                busy=worker.busy,
                connected=worker.connected,
            )
            if over:
                return


def main(arguments: list[str]) -> int:
    """Run the worker; the exit code."""
    options, reports = json.loads(arguments[0]), Reports(int(arguments[1]))
    logging.basicConfig(level=options["log_level"], format="%(asctime)s %(levelname)s %(message)s")
    try:
        worker = build(options["handler"], options["given"], options["processes"])
    except (MailboxError, ImportError, OSError) as error:
        reports.tell(error=" ".join(str(error).split()))
        return MISCONFIGURED
    threading.Thread(target=_drain_when_alone, daemon=True).start()
    following = reports.follow(worker)
    run_until_signalled(worker)
    reports.end()
    following.join()
    return 0


def build(path: str, given: dict[str, Any], processes: int) -> Worker[Any]:
    """The worker of this handler; what was given on the command line goes before its own."""
    target = load(path)
    options = target.options if isinstance(target, WorkerFunction) else WorkerOptions()
    options = replace(options, **given)
    mailbox = options.mailbox
    here = isinstance(mailbox, LocalMailbox) or str(mailbox).startswith(_HERE_ONLY)
    if here and processes > 1:
        raise InvalidParameterError(
            "processes",
            processes,
            f"1 for {mailbox}: one process at a time can have it open. To share work between "
            "processes use a broker (http://host:9324/name) or Redis (redis://host/name)",
        )
    return make_worker(target, options)


def _drain_when_alone() -> None:
    while os.read(0, 4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
