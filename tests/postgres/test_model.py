"""R140: whatever is asked in whatever order, PostgreSQL answers what memory answers."""

from __future__ import annotations

import pytest

from tests.contract.backends.postgres import PostgresBackend
from tests.model.twins import walk, walk_fair

STEPS = 150


@pytest.mark.parametrize("seed", range(8))
def test_R140_postgres_does_what_memory_does(seed: int) -> None:
    walk(seed, STEPS, PostgresBackend())


@pytest.mark.parametrize("seed", range(8))
def test_R151_postgres_is_fair_as_memory_is(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    walk_fair(range(seed, seed + 1), 2 * STEPS, PostgresBackend, monkeypatch)


def test_R151_control_another_rule_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(AssertionError, match="receive"):
        walk_fair(range(8), 2 * STEPS, PostgresBackend, monkeypatch, alike=False)


@pytest.mark.soak
@pytest.mark.timeout(1_200)
def test_R151_postgres_is_fair_as_memory_is_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    walk_fair(range(1_000, 1_200), 4 * STEPS, PostgresBackend, monkeypatch)


@pytest.mark.soak
@pytest.mark.timeout(1_200)
def test_R140_postgres_does_what_memory_does_for_long() -> None:
    for seed in range(1_000, 1_200):
        walk(seed, 4 * STEPS, PostgresBackend())
