"""A worker: a function on the messages of a mailbox, with retries and dead letters.

python examples/35_worker/main.py
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass

from pillarbox.worker import Reject, Retry, worker


@dataclass
class Parcel:
    address: str
    grams: int


tries: dict[str, int] = {}


@worker("memory:parcels", retries=3)
def pack(parcel: Parcel) -> None:
    tries[parcel.address] = tries.get(parcel.address, 0) + 1
    if parcel.grams > 1_000:
        raise Reject("too heavy")  # a dead letter at once: no second try will help
    if tries[parcel.address] == 1:
        raise Retry(after=0.1)  # the scales are busy
    print(f"packed {parcel.grams} g for {parcel.address}, at try {tries[parcel.address]}")


def main() -> None:
    running = pack.worker(concurrency=4)
    thread = threading.Thread(target=running.run)
    thread.start()
    pack.send_many([Parcel("Ada", 500), Parcel("Everyone", 5_000)])
    while pack.mailbox.approximate_count():
        time.sleep(0.01)
    running.stop()  # waits for what is under way
    thread.join()
    for letter in pack.mailbox.dead_letters.peek():
        print(f"dead: the parcel for {letter.body.address}, {letter.dead_letter.reason}")


if __name__ == "__main__":
    main()
