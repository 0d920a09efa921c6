"""Runs `pillarbox worker` as a user would, and reads what its handlers told."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from tests.worker.conftest import eventually

ROOT = Path(__file__).parents[2]


class Told(NamedTuple):
    """One line of a handler."""

    letter: str
    body: str
    delivery_count: int
    pid: int


def told_in(path: Path, letters: str = "SE") -> list[Told]:
    """What handlers told in this file, with one of these letters."""
    lines = path.read_text().splitlines() if path.exists() else []
    found = []
    for line in lines:
        letter, rest = line.split(" ", 1)
        body, count, pid = rest.rsplit(" ", 2)
        found.append(Told(letter, body, int(count), int(pid)))
    return [each for each in found if each.letter in letters]


class Command:
    """A running `pillarbox worker`."""

    def __init__(self, process: subprocess.Popen[str], told: Path) -> None:
        self.process = process
        self._told = told

    def told(self, letters: str = "SE") -> list[Told]:
        return told_in(self._told, letters)

    def started(self, count: int) -> list[Told]:
        """Wait until so many handlers have started."""
        eventually(lambda: len(self.told("S")) >= count, f"no {count} handlers started")
        return self.told("S")

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Signal it and wait for its end; the exit code."""
        self.process.send_signal(number)
        return self.process.wait(60)


@contextmanager
def command(
    told: Path, handler: str, *words: str, cwd: Path = ROOT, **variables: str
) -> Iterator[Command]:
    """`pillarbox worker handler words...`; killed at the end if it still runs."""
    environment = os.environ | {"SHOP_TOLD": str(told), "PYTHONPATH": str(ROOT)} | variables
    line = [sys.executable, "-m", "pillarbox.cli", "worker", handler, *words]
    process = subprocess.Popen(
        line, cwd=cwd, env=environment, stderr=subprocess.PIPE, text=True, stdin=subprocess.DEVNULL
    )
    running = Command(process, told)
    try:
        yield running
    finally:
        for pid in {line.pid for line in running.told()}:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        if process.poll() is None:
            process.kill()
        process.communicate()
