"""Workloads for the crash tests: operations on a log, and a check of every state they can leave.

A `Run` performs operations on a simulated disk. After each step of the disk (a write, a sync,
a rename ...) it crashes copies of the disk in many ways and opens each: what was confirmed
must be there, in order, with whole batches only, and nothing that was never submitted.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from pillarbox.log import Log, LogError
from pillarbox.testing.disk import SimDisk
from tests.log.support import contents, new_disk, open_log

SEGMENT_BYTES = 8192


class Run:
    """One log under one workload. `problems` lists every state that broke a promise."""

    def __init__(
        self,
        seed: int,
        *,
        durability: str = "fsync",
        states_per_step: int = 4,
        sync_lies: bool = False,
        crashing: bool = True,
    ) -> None:
        self.random = random.Random(seed)
        self.disk = new_disk(sync_lies=sync_lies)
        self.durability = durability
        self.states_per_step = states_per_step
        self.crashing = crashing
        self.batches: list[list[bytes]] = []
        self.confirmed = 0
        self.dropped_to = 0
        self.states = 0
        self.seen: set[int] = set()
        self.problems: list[str] = []
        self.log = self.open(self.disk)
        self.disk.after = self.crash_here

    def open(self, disk: SimDisk) -> Log:
        return open_log(disk, segment_bytes=SEGMENT_BYTES, durability=self.durability)

    # -- operations ------------------------------------------------------------------------

    def perform(self, *operations: Callable[[Run], None]) -> None:
        for operation in operations:
            operation(self)
            self.confirmed = len(self.batches)
            self.crash_here("end")

    def append(self, count: int, size: int) -> None:
        batch = [self.random.randbytes(size) for _ in range(count)]
        self.batches.append(batch)
        self.log.append_many(batch)
        self.confirmed = len(self.batches)

    def reopen(self) -> None:
        self.log.close()
        self.log = self.open(self.disk)

    def submit_two_groups(self) -> None:
        for _ in range(2):
            batch = [self.random.randbytes(40)]
            self.batches.append(batch)
            ticket = self.log.submit(batch)
        ticket.wait()

    def truncate(self) -> None:
        self.dropped_to = self.log.end_index
        self.log.truncate_before(self.log.end_index)

    def save_tailer(self) -> None:
        tailer = self.log.tailer("reader").to_end()
        tailer.save()

    def commit(self) -> None:
        self.batches.append([self.random.randbytes(50) for _ in range(4)])
        self.log.append_committed(self.batches[-1], b"meta")

    # -- checking --------------------------------------------------------------------------

    def crash_here(self, _operation: str) -> None:
        if not self.crashing:
            return
        after, self.disk.after = self.disk.after, None
        # The first two are the extremes: everything unsynced lost, and everything kept.
        choosers: list[Callable[[int], int]] = [lambda n: 0, lambda n: 1 if n > 1 else 0]
        choosers += [self.random.randrange] * self.states_per_step
        for choose in choosers:
            disk = self.disk.crash(choose)
            state = hash((self.confirmed, tuple(sorted(disk.files().items()))))
            if state not in self.seen:
                self.seen.add(state)
                self.states += 1
                self.check(disk)
        self.disk.after = after

    def check(self, disk: SimDisk) -> None:
        if self.states % 16 == 1:
            self.crash_during_recovery(disk)
        try:
            log = self.open(disk)
            found = contents(log)
            self.compare(found, log.first_index)
            if self.states % 8 == 0:
                self.go_on(log, disk, found)
        except LogError as error:
            self.problems.append(f"{error!r}")

    def crash_during_recovery(self, disk: SimDisk) -> None:
        """A second power loss while the log recovers from the first."""
        second = self.disk.__class__.of_files(disk.files())

        def crash(_operation: str) -> None:
            second.after, after = None, second.after
            third = second.crash(self.random.randrange)
            self.states += 1
            try:
                log = self.open(third)
                self.compare(contents(log), log.first_index)
            except LogError as error:
                self.problems.append(f"after a crash in recovery: {error!r}")
            second.after = after

        second.after = crash
        try:
            self.open(second).append(b"more")
        except LogError as error:
            self.problems.append(f"{error!r}")

    def go_on(self, log: Log, disk: SimDisk, found: list[bytes]) -> None:
        """A recovered log must be as good as any other: write to it, close it, open it."""
        log.append(b"after the crash")
        log.close()
        if contents(self.open(disk)) != [*found, b"after the crash"]:
            self.problems.append("the second opening saw something else than the first")

    def compare(self, found: list[bytes], first: int) -> None:
        sizes = [0]
        for batch in self.batches:
            sizes.append(sizes[-1] + len(batch))
        written = [record for batch in self.batches for record in batch]
        if first > self.dropped_to:
            self.problems.append(f"records below {first} are gone")
        if found and found[-1] == b"more" and len(found) + first - 1 in sizes:
            found = found[:-1]
        if found != written[first : first + len(found)]:
            self.problems.append("garbage, a gap, or another order")
        elif first + len(found) not in sizes and first + len(found) > first:
            self.problems.append("part of a batch")
        elif self.durability == "fsync" and first + len(found) < sizes[self.confirmed]:
            self.problems.append(f"{sizes[self.confirmed] - first - len(found)} confirmed lost")


OPERATIONS: dict[str, Callable[[Run], None]] = {
    "append": lambda run: run.append(1, 100),
    "batch": lambda run: run.append(3, 200),
    "roll": lambda run: run.append(2, 1200),
    "large": lambda run: run.append(1, 9000),
    "groups": Run.submit_two_groups,
    "reopen": Run.reopen,
    "truncate": Run.truncate,
    "tailer": Run.save_tailer,
    "commit": Run.commit,
}
