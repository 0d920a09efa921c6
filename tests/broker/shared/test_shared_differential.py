"""R141: a shared store answers as a broker's own store does, whatever is asked in which order."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pillarbox.testing import FakeClock
from pillarbox.testing.broker import running_broker
from tests.broker.differential import STEPS, Pair
from tests.broker.shared.conftest import SharedWorld
from tests.broker.support import Client


@pytest.fixture(scope="module")
def own_clock() -> FakeClock:
    return FakeClock()


@pytest.fixture(scope="module")
def own(own_clock: FakeClock) -> Iterator[Client]:
    with running_broker(clock=own_clock) as url, Client(url) as client:
        yield client


@pytest.mark.parametrize(
    "seeds", [range(3), pytest.param(range(3, 103), marks=pytest.mark.soak)], ids=str
)
def test_R141_a_shared_store_answers_as_an_own_store_does(
    seeds: range, own: Client, own_clock: FakeClock, world: SharedWorld
) -> None:
    for seed in seeds:
        pair = Pair(own, world.sqs, own_clock, world.clock)
        for number in range(STEPS):
            pair.step(f"{seed}.{number}")  # its own seed: a failure stays when others are left out
