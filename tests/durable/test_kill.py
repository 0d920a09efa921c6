"""kill -9 of a real process under load: nothing confirmed is lost, nothing deleted comes back."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from pillarbox.mailbox.durable import DurableMailbox
from tests.durable.world import ids_of

CI_ROUNDS = 100
SOAK_ROUNDS = 2_000


class Told:
    """What the killed processes said they had done."""

    def __init__(self) -> None:
        self.sent: set[str] = set()
        self.tried: set[str] = set()
        self.gone: set[str] = set()

    def hear(self, output: bytes) -> None:
        places = {b"S": self.sent, b"T": self.tried, b"A": self.gone}
        for line in output.splitlines(keepends=True):
            letter, _, rest = line.partition(b" ")
            if line.endswith(b"\n") and letter in places:
                places[letter].add(rest.decode().strip())


def run_and_kill(path: Path, durability: str, seconds: float) -> bytes:
    """Let a process work for a while, then kill it; what it said until then."""
    program = [sys.executable, "-m", "tests.durable.mailbox_process", str(path), durability]
    with subprocess.Popen(program, stdout=subprocess.PIPE, bufsize=0) as process:
        assert process.stdout is not None
        said = [process.stdout.readline()]
        timer = threading.Timer(seconds, process.send_signal, [signal.SIGKILL])
        timer.start()
        said.append(process.stdout.read() or b"")
        process.wait()
        timer.join()
        while rest := process.stdout.read():
            said.append(rest)
    assert process.returncode == -signal.SIGKILL
    return b"".join(said)


def rounds(path: Path, durability: str, count: int, seed: int) -> Told:
    chance = random.Random(seed)
    told = Told()
    for _ in range(count):
        told.hear(run_and_kill(path, durability, chance.uniform(0.0, 0.15)))
        box = DurableMailbox("box", bytes, path=path, durability="os")
        found = ids_of(box._store).keys()
        box.close()
        lost = told.sent - told.tried - found
        assert not lost, f"{len(lost)} of {len(told.sent)} confirmed messages are lost"
        revived = told.gone & found
        assert not revived, f"{len(revived)} of {len(told.gone)} deleted messages came back"
        told.sent &= found  # what is over is over
        told.gone.clear()
        told.tried.clear()
    return told


@pytest.mark.timeout(400)
@pytest.mark.parametrize("durability", ["fsync", "os"])
def test_R58_kill_9_under_load_loses_nothing_and_revives_nothing(
    tmp_path: Path, durability: str
) -> None:
    told = rounds(tmp_path / "store", durability, CI_ROUNDS // 2, seed=9)
    assert told.sent, "nothing was sent: this proves nothing"


def test_R58_without_writing_before_confirming_kill_9_loses_messages(tmp_path: Path) -> None:
    """Control: at level memory a confirmation means nothing to a killed process."""
    with pytest.raises(AssertionError, match="are lost"):
        rounds(tmp_path / "store", "memory", 20, seed=9)


@pytest.mark.soak
@pytest.mark.parametrize("durability", ["fsync", "os"])
def test_R58_kill_9_very_often_loses_nothing_and_revives_nothing(
    tmp_path: Path, durability: str
) -> None:
    """A new store every hundred rounds, for it grows, and opening it is most of a round."""
    for part in range(SOAK_ROUNDS // 2 // 100):
        told = rounds(tmp_path / f"store-{part}", durability, 100, seed=10 + part)
        print(f"{durability}: {(part + 1) * 100:,} kills, {len(told.sent):,} messages", flush=True)
