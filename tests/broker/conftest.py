"""Brokers on a fake clock, one for each module, and a client of each protocol."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pillarbox.testing import FakeClock
from pillarbox.testing.broker import RunningBroker, running_broker
from tests.broker.support import Client, World


@pytest.fixture(scope="module")
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture(scope="module")
def broker(clock: FakeClock) -> Iterator[RunningBroker]:
    with running_broker(clock=clock) as url:
        yield url


@pytest.fixture(params=["json", "query"])
def world(
    request: pytest.FixtureRequest, broker: RunningBroker, clock: FakeClock
) -> Iterator[World]:
    found = World(broker, clock, request.param)
    yield found
    found.sqs.close()


@pytest.fixture
def sqs(world: World) -> Client:
    return world.sqs


@pytest.fixture
def store(tmp_path: Path) -> str:
    return str(tmp_path / "data")
