"""R32: whatever is asked in whatever order, Redis answers what the mailbox in memory answers."""

from __future__ import annotations

import pytest

from tests.contract.backends.redis import RedisBackend
from tests.model.twins import walk

STEPS = 150


@pytest.mark.parametrize("seed", range(8))
def test_R32_redis_does_what_memory_does(seed: int) -> None:
    walk(seed, STEPS, RedisBackend())


@pytest.mark.soak
@pytest.mark.timeout(1_200)
def test_R32_redis_does_what_memory_does_for_long() -> None:
    for seed in range(1_000, 1_200):
        walk(seed, 4 * STEPS, RedisBackend())
