"""A mailbox on disk: confirmed messages survive the end of the program.

python examples/02_mailbox_on_disk/main.py ./data
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

from pillarbox import DeadLetterPolicy, Mailbox, open_mailbox


@dataclass
class Order:
    tea: str
    grams: int


def open_orders(data: str) -> Mailbox[Order]:
    policy = DeadLetterPolicy(max_deliveries=2)
    return open_mailbox(f"file:{data}/orders", Order, dead_letters=policy)


def work(orders: Mailbox[Order]) -> None:
    """Take what is ready; what can't be weighed goes back."""
    while messages := orders.receive(max_messages=10):
        for message in messages:
            if message.body.grams > 0:
                print(f"packed {message.body.grams} g of {message.body.tea}")
                message.acknowledge()
            else:
                message.nack()


def main(data: str) -> None:
    with open_orders(data) as orders:
        orders.send_many([Order("Assam", 100), Order("Darjeeling", 0)])  # one sync of the disk
        orders.send(Order("Keemun", 50), priority=9)
        print(f"{orders.stats().ready} orders are on disk")

    with open_orders(data) as orders:  # another day, another process
        work(orders)
        letters = orders.dead_letters
        assert letters is not None
        for letter in letters.peek():
            print(f"dead: {letter.body.tea}, {letter.dead_letter.reason}")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "./data")
