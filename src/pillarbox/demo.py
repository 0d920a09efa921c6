"""`make run`: a small order desk at work, on mailboxes in memory.

Three shops send orders, some urgent, some for later, a few of them poison. Two clerks of
different speed work them off. Dead letters are mended and sent back, and a table tells what
became of everything. `ONCE=1` ends after the table.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections import Counter
from contextlib import suppress

from msgspec import Struct
from rich.console import Console
from rich.live import Live
from rich.table import Table

from pillarbox import (
    DeadLetterPolicy,
    InMemoryMailbox,
    MailboxClosedError,
    Message,
    Undecodable,
)

_ORDERS = 600
_URGENT = 200
_PRIORITY_OF_URGENT = 9
_PAUSES = {"Ada": 0.001, "Brian": 0.004}  # seconds an order takes each clerk
_TEAS = ("Assam", "Ceylon", "Darjeeling", "Keemun", "Lapsang")


class Order(Struct, frozen=True):
    """What a customer wants."""

    number: int
    tea: str
    grams: int


class Desk:
    """The mailbox of orders, those who work on it, and what they have done."""

    def __init__(self) -> None:
        self.orders = InMemoryMailbox("orders", Order, dead_letters=DeadLetterPolicy(3))
        self.done: Counter[str] = Counter()
        self.first_urgent: list[bool] = []
        self.mended = False
        self._lock = threading.Lock()

    def work(self, clerk: str) -> None:
        """Take orders until the mailbox is closed."""
        with suppress(MailboxClosedError):
            while True:
                for message in self.orders.receive(visibility_timeout=5, wait_time_seconds=1):
                    time.sleep(_PAUSES[clerk])
                    self._handle(clerk, message)

    def _handle(self, clerk: str, message: Message[Order]) -> None:
        if message.body.grams <= 0 and not self.mended:
            message.nack()  # poison: three failed deliveries, then it is a dead letter
            return
        if message.acknowledge():
            with self._lock:
                self.done[clerk] += 1
                self.first_urgent.append(message.priority == _PRIORITY_OF_URGENT)


def main() -> None:
    console = Console()
    console.print("[bold]Pillarbox[/]: an order desk on a mailbox in memory\n")
    desk = Desk()
    sent, poison = _send_orders(desk)
    clerks = [threading.Thread(target=desk.work, args=[name]) for name in _PAUSES]
    for clerk in clerks:
        clerk.start()
    with Live(_table(desk, sent, 0), console=console, refresh_per_second=8) as live:
        _watch(desk, sent - poison, lambda: live.update(_table(desk, sent, 0)))
        dead = desk.orders.stats().dead
        desk.mended = True
        letters = desk.orders.dead_letters
        assert letters is not None
        redriven = letters.redrive(where=_is_poison)
        _watch(desk, sent, lambda: live.update(_table(desk, sent, redriven)))
        live.update(_table(desk, sent, redriven))
    console.print(f"\n{dead} dead letters were mended and redriven; {sent:,} of {sent:,} done.")
    if not os.environ.get("ONCE"):
        console.print("Press Ctrl-C to stop.")
        _until_interrupted()
    desk.orders.close()
    for clerk in clerks:
        clerk.join()


def _send_orders(desk: Desk) -> tuple[int, int]:
    """Put the day's orders in; how many, and how many of them nobody can fill."""
    chance = random.Random(1840)
    poison = 0
    for number in range(_ORDERS):
        broken = chance.random() < 0.02
        poison += broken
        order = Order(number, chance.choice(_TEAS), 0 if broken else chance.randrange(50, 500))
        desk.orders.send(order, delay_seconds=chance.choice((0, 0, 0, 0.5)))
    urgent = [Order(number, chance.choice(_TEAS), 100) for number in range(_URGENT)]
    desk.orders.send_many(urgent, priority=_PRIORITY_OF_URGENT)
    return _ORDERS + _URGENT, poison


def _is_poison(message: Message[Order | Undecodable]) -> bool:
    return isinstance(message.body, Order)


def _watch(desk: Desk, wanted: int, show: object) -> None:
    while sum(desk.done.values()) < wanted or desk.orders.stats().in_flight:
        time.sleep(0.05)
        if callable(show):
            show()


def _table(desk: Desk, sent: int, redriven: int) -> Table:
    stats = desk.orders.stats()
    table = Table(title="orders", title_justify="left")
    for name in ("sent", "ready", "scheduled", "in flight", "dead", "redriven", *_PAUSES):
        table.add_column(name, justify="right")
    figures = (sent, stats.ready, stats.scheduled, stats.in_flight, stats.dead, redriven)
    done = (f"{desk.done[name]:,} done" for name in _PAUSES)
    table.add_row(*(f"{figure:,}" for figure in figures), *done)
    first = desk.first_urgent[:_URGENT]
    table.caption = f"{sum(first)} of the first {len(first)} orders done were urgent ones"
    return table


def _until_interrupted() -> None:
    try:
        threading.Event().wait()
    except KeyboardInterrupt:
        return


if __name__ == "__main__":
    main()
