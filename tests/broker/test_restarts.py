"""R58: a broker that is restarted again and again answers as one that never was."""

from __future__ import annotations

from pathlib import Path

import pytest

from pillarbox.testing import FakeClock
from pillarbox.testing.broker import running_broker
from tests.broker.differential import STEPS, Pair
from tests.broker.support import Client

RESTARTS = 6


@pytest.mark.parametrize(
    "seeds", [range(3), pytest.param(range(3, 103), marks=pytest.mark.soak)], ids=str
)
def test_R58_restarts_change_no_answer(seeds: range, tmp_path: Path) -> None:
    for seed in seeds:
        clock, data = FakeClock(), str(tmp_path / str(seed))
        with running_broker(clock=clock) as url, Client(url) as own:
            pair: Pair | None = None
            for run in range(RESTARTS):
                with running_broker(data, "os", clock=clock) as again, Client(again) as other:
                    pair = pair or Pair(own, other, clock)
                    pair.use(other)
                    for number in range(STEPS // RESTARTS):
                        pair.step(f"{seed}.{run}.{number}")
