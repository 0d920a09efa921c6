"""A real process with a bus on disk is killed while it handles a message (R91, R97)."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

from pillarbox.bus import MessageBus
from tests.bus.agent_process import COUNT, DEADLY

ROOT = Path(__file__).parents[2]


def run(directory: Path) -> tuple[int, list[int]]:
    """One life of the agent: how it ended, and what it began to handle."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.bus.agent_process", str(directory)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        timeout=60,
        check=False,
    )
    return done.returncode, [int(line) for line in done.stdout.split()]


def test_R97_a_message_that_kills_its_process_ends_with_the_dead_and_no_other_is_lost(
    tmp_path: Path,
) -> None:
    begun: Counter[int] = Counter()
    ends = []
    for _ in range(6):
        code, payloads = run(tmp_path / "bus")
        ends.append(code)
        begun.update(payloads)
    assert ends == [-signal.SIGKILL] * 5 + [0]
    assert set(begun) == set(range(COUNT))
    assert begun[DEADLY] == 5, "as often as the policy allows"
    with MessageBus.open(tmp_path / "bus") as bus:
        assert [m.payload for m in bus.dead_letters("agent")] == [DEADLY]
        assert bus.stats("agent").total == 0
