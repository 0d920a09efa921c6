"""Sends all rows of a DataFrame to a mailbox, and reports the progress.

For a mailbox on a server, Spark's tasks send the messages, and progress counts tasks. For a
mailbox on disk, the driver sends the rows that it gets from the tasks, and progress counts
messages.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from pillarbox.spark.location import mailbox_url, without_secret

_POLL_SECONDS = 0.2
_SETTLE_SECONDS = 2.0
_GROUP = "spark.jobGroup.id"


class Progress(NamedTuple):
    """The progress of `enqueue`, in `tasks` or `messages` (`what`)."""

    what: str
    done: int
    total: int


def enqueue(
    frame: Any, url: str, *, progress: Callable[[Progress], object] | None = None, **options: str
) -> None:
    """Send each row of a DataFrame to a mailbox, and call `progress` periodically.

    Takes the options of a write. With `processor`, rows that are sent again within five minutes
    are recognised and dropped.
    """
    target = mailbox_url(url, wanted=True) or url
    writer = frame.write.format("pillarbox").mode("append").options(**options)
    writer = writer.option("target", "mailbox")
    if progress is None:
        writer.save(target)
        return
    context, group = frame.sparkSession.sparkContext, f"pillarbox-{secrets.token_hex(8)}"
    before = context.getLocalProperty(_GROUP)
    context.setJobGroup(group, f"sending to {without_secret(target)}")
    with TemporaryDirectory(prefix="pillarbox-") as directory:
        path = Path(directory) / "sent"
        reporter = _ProgressReporter(context.statusTracker(), group, path, progress)
        try:
            writer.option("progressPath", str(path)).save(target)
            reporter.settle()
        finally:
            reporter.stop()
            context.setLocalProperty(_GROUP, before)


class _ProgressReporter:
    """Reports how many tasks of a job group are done, and then how many messages."""

    def __init__(
        self, tracker: Any, group: str, path: Path, report: Callable[[Progress], object]
    ) -> None:
        self._tracker, self._group, self._path, self._report = tracker, group, path, report
        self._reported: Progress | None = None
        self._stopped, self._complete = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="pillarbox-enqueue", daemon=True)
        self._thread.start()

    def settle(self) -> None:
        """Wait until completion is reported: Spark's task counts lag behind a little."""
        self._complete.clear()
        self._complete.wait(_SETTLE_SECONDS)

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopped.wait(_POLL_SECONDS):
            self._poll()

    def _poll(self) -> None:
        now = self._messages() or self._tasks()
        if now is not None and now != self._reported:
            self._reported = now
            self._report(now)
        if now is not None and now.done == now.total:
            self._complete.set()

    def _messages(self) -> Progress | None:
        try:
            done, _, total = self._path.read_text(encoding="ascii").partition(" ")
        except FileNotFoundError:
            return None
        return Progress("messages", int(done), int(total)) if total else self._reported

    def _tasks(self) -> Progress | None:
        tracker = self._tracker
        jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(self._group)]
        stages = [tracker.getStageInfo(stage) for job in jobs if job for stage in job.stageIds]
        started = [stage for stage in stages if stage]
        if not started:
            return None
        done = sum(stage.numCompletedTasks for stage in started)
        return Progress("tasks", done, sum(stage.numTasks for stage in started))
