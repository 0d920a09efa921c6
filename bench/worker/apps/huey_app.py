"""huey, which does not acknowledge: what a worker has taken is gone."""

from __future__ import annotations

import os

from huey import RedisHuey

huey = RedisHuey("bench", url=os.environ["BENCH_URL"], results=False)


@huey.task()
def noop(number: int) -> None:
    pass
