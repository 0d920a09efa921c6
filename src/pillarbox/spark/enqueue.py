"""Sending all rows of a DataFrame to a mailbox, and watching how far it is.

Mailboxes on a server are sent to by Spark's tasks, so tasks are what is counted. For one on disk
the driver sends what the tasks hand it, and messages are counted.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from pillarbox.spark.location import mailbox_url, without_secret

_LOOK_SECONDS = 0.2
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
    """Send each row of a DataFrame to a mailbox; `progress` is called from time to time.

    The options are those of a write. With `processor`, rows that are sent again within five minutes
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
        note = Path(directory) / "sent"
        watch = _ProgressReporter(context.statusTracker(), group, note, progress)
        try:
            writer.option("progressPath", str(note)).save(target)
            watch.settle()
        finally:
            watch.stop()
            context.setLocalProperty(_GROUP, before)


class _ProgressReporter:
    """Reports how many tasks of a job group are done, and then how many messages."""

    def __init__(
        self, tracker: Any, group: str, note: Path, tell: Callable[[Progress], object]
    ) -> None:
        self._tracker, self._group, self._note, self._report = tracker, group, note, tell
        self._reported: Progress | None = None
        self._over, self._complete = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="pillarbox-enqueue", daemon=True)
        self._thread.start()

    def settle(self) -> None:
        """Wait until the end is reported: Spark's figures come a moment later."""
        self._complete.clear()
        self._complete.wait(_SETTLE_SECONDS)

    def stop(self) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._over.wait(_LOOK_SECONDS):
            self._look()

    def _look(self) -> None:
        now = self._messages() or self._tasks()
        if now is not None and now != self._reported:
            self._reported = now
            self._report(now)
        if now is not None and now.done == now.total:
            self._complete.set()

    def _messages(self) -> Progress | None:
        try:
            done, _, total = self._note.read_text(encoding="ascii").partition(" ")
        except FileNotFoundError:
            return None
        return Progress("messages", int(done), int(total)) if total else self._reported

    def _tasks(self) -> Progress | None:
        tracker = self._tracker
        jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(self._group)]
        stages = [tracker.getStageInfo(stage) for job in jobs if job for stage in job.stageIds]
        known = [stage for stage in stages if stage]
        if not known:
            return None
        done = sum(stage.numCompletedTasks for stage in known)
        return Progress("tasks", done, sum(stage.numTasks for stage in known))
