"""R32: whatever is asked in whatever order, Redis answers what the mailbox in memory answers."""

from __future__ import annotations

import pytest

from tests.contract.backends.redis import RedisBackend
from tests.model.twins import walk, walk_fair

STEPS = 150


@pytest.mark.parametrize("seed", range(8))
def test_R32_redis_does_what_memory_does(seed: int) -> None:
    walk(seed, STEPS, RedisBackend())


@pytest.mark.parametrize("seed", range(8))
def test_R151_redis_is_fair_as_memory_is(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    walk_fair(range(seed, seed + 1), 2 * STEPS, RedisBackend, monkeypatch)


def test_R151_control_another_rule_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(AssertionError, match="receive"):
        walk_fair(range(8), 2 * STEPS, RedisBackend, monkeypatch, alike=False)


@pytest.mark.soak
@pytest.mark.timeout(1_200)
def test_R151_redis_is_fair_as_memory_is_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    walk_fair(range(1_000, 1_200), 4 * STEPS, RedisBackend, monkeypatch)


@pytest.mark.soak
@pytest.mark.timeout(1_200)
def test_R32_redis_does_what_memory_does_for_long() -> None:
    for seed in range(1_000, 1_200):
        walk(seed, 4 * STEPS, RedisBackend())
