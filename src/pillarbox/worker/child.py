"""One process of `pillarbox worker`: runs workers and reports to its supervisor.

python -m pillarbox.worker.child OPTIONS REPORTS

OPTIONS is JSON. REPORTS is a file descriptor for lines of JSON. End of standard input means that
the supervisor is gone; the process then drains as on SIGTERM.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct, field

from pillarbox.core.errors import InvalidParameterError, MailboxError
from pillarbox.mailbox.local import LocalMailbox
from pillarbox.mailbox.memory import InMemoryMailbox
from pillarbox.mailbox.url import without_password
from pillarbox.worker.decorators import MAILBOX_VARIABLE, WorkerFunction, find_handlers, worker
from pillarbox.worker.engine import Worker
from pillarbox.worker.signals import run_until_signalled
from pillarbox.worker.stats import WorkerStats

REPORT_SECONDS = 0.25
MISCONFIGURED = 3  # exit code: a restart would not help
_SHARED = "a broker (http://host:9324/name) or Redis (redis://host/name)"


class Options(Struct):
    """The options that the supervisor passes to a process."""

    handlers: list[str]
    overrides: dict[str, Any] = {}  # of the options in the decorators
    processes: int = 1
    log_level: str = "WARNING"


class Report(Struct):
    """A report to the supervisor: the stats by handler, or why the process can't start."""

    workers: dict[str, WorkerStats] = field(default_factory=dict)
    error: str = ""


def main(arguments: list[str]) -> int:
    """Run the workers and return the exit code."""
    options = msgspec.json.decode(arguments[0], type=Options)
    reports = int(arguments[1])
    sys.argv[0] = f"worker {' '.join(options.handlers)}"  # the name in the broker's dashboard
    logging.basicConfig(level=options.log_level, format="%(asctime)s %(levelname)s %(message)s")
    try:
        workers = build(options)
    except (MailboxError, ImportError, OSError) as error:
        _send(reports, Report(error=" ".join(_describe(error, options).split())))
        return MISCONFIGURED
    threading.Thread(target=_drain_when_orphaned, daemon=True).start()
    ended = threading.Event()
    reporting = threading.Thread(target=_report, args=(reports, workers, ended), daemon=True)
    reporting.start()
    try:
        run_until_signalled(*workers.values())
    finally:
        ended.set()
        reporting.join()
    return 0


def _describe(error: Exception, options: Options) -> str:
    """Describe an error; name the option of the command line whose value is wrong."""
    if not isinstance(error, InvalidParameterError):
        return str(error)
    name = "mailbox" if error.parameter == "url" else error.parameter
    if name != "processes" and name not in options.overrides:
        return str(error)
    return f"--{name.replace('_', '-')}" + str(error).removeprefix(error.parameter)


def build(options: Options) -> dict[str, Worker[Any]]:
    """Build the workers of these handlers; command-line options override the decorators."""
    handlers = find_handlers(options.handlers)
    url = options.overrides.get("mailbox")
    if url is not None and len(handlers) > 1:
        raise InvalidParameterError(
            "mailbox",
            without_password(url),
            f"given for one handler (--mailbox or {MAILBOX_VARIABLE}); these are "
            f"{', '.join(handlers)}, which have mailboxes of their own",
        )
    return {name: _build(target, options) for name, target in handlers.items()}


def _build(target: Any, options: Options) -> Worker[Any]:
    function = target if isinstance(target, WorkerFunction) else worker()(target)
    overrides = dict(options.overrides)
    url = overrides.pop("mailbox", None)
    if url is not None:
        function.use_mailbox(url)
    _check_mailbox(function.address, options.processes)
    return function.worker(**overrides)


def _check_mailbox(mailbox: Any, processes: int) -> None:
    """Raise if other processes can't send to the mailbox, or if several can't open it."""
    if isinstance(mailbox, InMemoryMailbox) or str(mailbox).startswith("memory:"):
        raise InvalidParameterError(
            "mailbox",
            mailbox,
            "one that other processes can send to: `pillarbox worker` runs in processes of its "
            "own, and memory: is private to each process; use a directory (file:./data/name), "
            f"{_SHARED}, or call run() of the @worker function in your own program",
        )
    if processes > 1 and (isinstance(mailbox, LocalMailbox) or str(mailbox).startswith("file:")):
        raise InvalidParameterError(
            "processes",
            processes,
            f"1 for {mailbox}, which only one process can open; to share work between processes, "
            f"use {_SHARED}",
        )


def _report(handle: int, workers: Mapping[str, Worker[Any]], ended: threading.Event) -> None:
    """Report the stats of the workers several times a second, and once more at the end."""
    last = False
    while not last:
        last = ended.wait(REPORT_SECONDS)
        _send(handle, Report({name: worker.stats() for name, worker in workers.items()}))


def _send(handle: int, report: Report) -> None:
    try:
        os.write(handle, msgspec.json.encode(report) + b"\n")
    except BrokenPipeError:
        return  # the supervisor is gone


def _drain_when_orphaned() -> None:
    while os.read(0, 4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
