"""The example prints what its README says."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

HERE = Path(__file__).parent


def test_R55_boto3_and_a_mailbox_share_a_queue(
    tmp_path: Path, prints_what_its_readme_says: Callable[..., None]
) -> None:
    prints_what_its_readme_says(HERE)
