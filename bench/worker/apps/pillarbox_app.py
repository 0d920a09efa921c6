"""Ours. The URL of the mailbox comes from the environment."""

from __future__ import annotations

import os

from pillarbox.worker import worker


@worker(os.environ["BENCH_URL"])
def noop(number: int) -> None:
    pass
