"""The example prints what its README says."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

HERE = Path(__file__).parent


def test_R31_orders_survive_and_the_bad_one_is_told(
    tmp_path: Path, prints_what_its_readme_says: Callable[..., None]
) -> None:
    prints_what_its_readme_says(HERE, tmp_path / "data")
