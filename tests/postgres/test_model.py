"""R140: whatever is asked in whatever order, PostgreSQL answers what memory answers."""

from __future__ import annotations

import pytest

from tests.contract.backends.postgres import PostgresBackend
from tests.model.twins import walk

STEPS = 150


@pytest.mark.parametrize("seed", range(8))
def test_R140_postgres_does_what_memory_does(seed: int) -> None:
    walk(seed, STEPS, PostgresBackend())


@pytest.mark.soak
@pytest.mark.timeout(1_200)
def test_R140_postgres_does_what_memory_does_for_long() -> None:
    for seed in range(1_000, 1_200):
        walk(seed, 4 * STEPS, PostgresBackend())
