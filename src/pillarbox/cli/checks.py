"""One check of `pillarbox doctor` and its result, and the checks of a disk and of the clock."""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path
from typing import Literal, NamedTuple

_SYNCS = 50
_SLOW_SYNC_MS = 20.0
FREE_BYTES_MIN = 1 << 30
SKEW_SECONDS_MAX = 1.0


class Finding(NamedTuple):
    """The result of one check. Only what is bad makes the doctor fail."""

    what: str
    state: Literal["good", "absent", "warning", "bad"]
    found: str
    advice: str = ""


def sync_speed(directory: Path) -> Finding:
    """The shortest time that a confirmed send waits for the disk."""
    try:
        with tempfile.TemporaryFile(dir=directory) as file:
            handle = file.fileno()
            os.pwrite(handle, b"\0" * 4096 * _SYNCS, 0)
            os.fsync(handle)
            times = []
            for i in range(_SYNCS):
                started = time.perf_counter()
                os.pwrite(handle, b"\1" * 512, i * 4096)
                os.fdatasync(handle)
                times.append((time.perf_counter() - started) * 1_000)
    except OSError as error:
        return Finding("disk sync", "bad", str(error), f"make {directory} writable, or give --data")
    median = sorted(times)[_SYNCS // 2]
    found = f"{median:.2f} ms, about {1_000 / median:,.0f} single confirmed sends per second"
    if median > _SLOW_SYNC_MS:
        return Finding("disk sync", "bad", found, "use another disk, batches, or durability=os")
    return Finding("disk sync", "good", found)


def free_space(free: int, where: str) -> Finding:
    found = f"{free / (1 << 30):,.1f} GiB free {where}"
    if free < FREE_BYTES_MIN:
        return Finding("free space", "bad", found, "free some space: a store needs at least 1 GiB")
    return Finding("free space", "good", found)


def clock() -> Finding:
    """Compare the wall clock with the monotonic one: a jump shows that it is being set."""
    wall, steady = time.time(), time.monotonic()
    time.sleep(0.1)
    drift = abs((time.time() - wall) - (time.monotonic() - steady))
    if drift > SKEW_SECONDS_MAX or time.gmtime().tm_year < 2024:
        return Finding("clock", "bad", time.ctime(), "set the clock, and keep it with NTP")
    return Finding("clock", "good", f"{time.strftime('%Y-%m-%d %H:%M:%S %Z')}, steady")


def clock_of(server: str, seconds_ahead: float) -> Finding:
    """The clock of a server, compared with the one here."""
    found = f"{abs(seconds_ahead):.1f} s {'ahead of' if seconds_ahead > 0 else 'behind'} this one"
    if abs(seconds_ahead) <= SKEW_SECONDS_MAX:
        return Finding("clock", "good", f"agrees with this one to {abs(seconds_ahead):.1f} s")
    return Finding("clock", "bad", found, f"keep the clocks here and at {server} right with NTP")
