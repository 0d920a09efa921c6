"""The example prints what its README says."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

HERE = Path(__file__).parent


def test_R103_a_worker_retries_and_gives_up(
    tmp_path: Path, prints_what_its_readme_says: Callable[..., None]
) -> None:
    prints_what_its_readme_says(HERE)
