"""One process of `pillarbox worker`: runs a worker and reports to its supervisor.

python -m pillarbox.worker.child OPTIONS REPORTS

OPTIONS is JSON. REPORTS is a file descriptor for lines of JSON. When standard input ends, the
supervisor is gone, and the process drains as on SIGTERM.
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
MISCONFIGURED = 3  # exit code: a restart would not help
_SINGLE_PROCESS = ("memory:", "file:")


class Reports:
    """Reports the state of the worker to the supervisor."""

    def __init__(self, handle: int) -> None:
        self._handle = handle
        self._ended = threading.Event()

    def send(self, **facts: Any) -> None:
        """Write one line, short enough for an atomic write."""
        try:
            os.write(self._handle, json.dumps(facts).encode() + b"\n")
        except BrokenPipeError:
            return  # the supervisor is gone

    def follow(self, worker: Worker[Any]) -> threading.Thread:
        """Report on this worker until `end`."""
        thread = threading.Thread(target=self._follow, args=(worker,), daemon=True)
        thread.start()
        return thread

    def end(self) -> None:
        """Make one last report."""
        self._ended.set()

    def _follow(self, worker: Worker[Any]) -> None:
        while True:
            over = self._ended.wait(REPORT_SECONDS)
            self.send(
                queue=worker.mailbox.name,
                done=worker.done,
                failed=worker.failed,
                busy=worker.busy,
                connected=worker.connected,
            )
            if over:
                return


def main(arguments: list[str]) -> int:
    """Run the worker and return the exit code."""
    options, reports = json.loads(arguments[0]), Reports(int(arguments[1]))
    logging.basicConfig(level=options["log_level"], format="%(asctime)s %(levelname)s %(message)s")
    try:
        worker = build(options["handler"], options["given"], options["processes"])
    except (MailboxError, ImportError, OSError) as error:
        reports.send(error=" ".join(str(error).split()))
        return MISCONFIGURED
    threading.Thread(target=_drain_when_orphaned, daemon=True).start()
    following = reports.follow(worker)
    run_until_signalled(worker)
    reports.end()
    following.join()
    return 0


def build(path: str, given: dict[str, Any], processes: int) -> Worker[Any]:
    """The worker of this handler; command-line options override those of its decorator."""
    target = load(path)
    options = target.options if isinstance(target, WorkerFunction) else WorkerOptions()
    options = replace(options, **given)
    mailbox = options.mailbox
    here = isinstance(mailbox, LocalMailbox) or str(mailbox).startswith(_SINGLE_PROCESS)
    if here and processes > 1:
        raise InvalidParameterError(
            "processes",
            processes,
            f"1 for {mailbox}, which only one process can open; to share work between processes, "
            "use a broker (http://host:9324/name) or Redis (redis://host/name)",
        )
    return make_worker(target, options)


def _drain_when_orphaned() -> None:
    while os.read(0, 4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
