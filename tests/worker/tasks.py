"""Two workers in one module, on one store; and what a user may define beside them."""

from __future__ import annotations

import os

from pillarbox.worker import Job, Reject, Retry, worker
from tests.worker.shop import pack as not_a_worker  # noqa: F401 - an imported function
from tests.worker.shop import tell

STORE = os.environ.get("SHOP_STORE", "./store")


@worker(f"file:{STORE}/parcels", retries=1, backoff=0, concurrency=2)
def pack(parcel: str, job: Job[str]) -> None:
    tell("S", job)
    if parcel == "bad":
        raise ValueError("no such tea")
    if parcel == "refused":
        raise Reject("too heavy")
    if parcel == "later" and job.delivery_count == 1:
        raise Retry(0)
    tell("E", job)
    post.send(parcel)


alias = pack


@worker(f"file:{STORE}/letters")
async def post(letter: str, job: Job[str]) -> None:
    tell("E", job)
