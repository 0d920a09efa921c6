"""The workload: orders of customers, and the clerks who handle them."""

from __future__ import annotations

import datetime
import random
import threading
import time
from collections import Counter
from contextlib import suppress
from typing import Any

from msgspec import Struct

from pillarbox import Mailbox, MailboxClosedError, MailboxError, Message, Undecodable

CLERKS = {"Ada": 0.001, "Brian": 0.008}  # seconds per order
URGENT = 9
_TEAS = ("Assam", "Ceylon", "Darjeeling", "Keemun", "Lapsang")
_OPENING = datetime.datetime(2026, 5, 1, 9, tzinfo=datetime.UTC)


class Order(Struct, frozen=True):
    """An order of a customer."""

    number: int
    tea: str
    grams: int
    at: datetime.datetime


Totals = dict[str, tuple[int, int]]  # by tea: orders and grams


class Day:
    """The orders of a day, always the same, and their totals."""

    def __init__(self, count: int, seed: int = 1840) -> None:
        chance = random.Random(seed)
        self.orders = [_order(number, chance) for number in range(count)]
        self.urgent = {order.number for order in self.orders if chance.random() < 0.1}
        self.later = {order.number for order in self.orders if chance.random() < 0.05}
        self.twice = {order.number for order in self.orders if chance.random() < 0.05}
        self.poison = sum(order.grams == 0 for order in self.orders)
        self.late = sum(order.at < _OPENING for order in self.orders)

    @property
    def totals(self) -> Totals:
        orders: Counter[str] = Counter()
        grams: Counter[str] = Counter()
        for order in self.orders:
            orders[order.tea] += 1
            grams[order.tea] += order.grams
        return {tea: (orders[tea], grams[tea]) for tea in sorted(orders)}

    def send(self, box: Mailbox[Order]) -> int:
        """Send all orders; returns how many were sent twice and stored once."""
        repeated = 0
        for order in self.orders:
            options: dict[str, Any] = {"deduplication_id": f"order-{order.number}"}
            if order.number in self.urgent:
                options["priority"] = URGENT
            elif order.number in self.later:
                options["delay_seconds"] = 1
            first = box.send(order, **options)
            if order.number in self.twice:  # an impatient customer
                repeated += box.send(order, **options) == first
        return repeated


def _order(number: int, chance: random.Random) -> Order:
    at = _OPENING + datetime.timedelta(seconds=number * 0.4)
    if chance.random() < 0.03:  # a late event
        at -= datetime.timedelta(minutes=chance.randrange(5, 50))
    grams = 0 if chance.random() < 0.02 else chance.randrange(50, 500)
    return Order(number, chance.choice(_TEAS), grams, at)


class Clerks:
    """Receive orders until the mailbox is closed; nack those that can't be packed."""

    def __init__(self, box: Mailbox[Order]) -> None:
        self._box = box
        self._lock = threading.Lock()
        self.done: dict[str, set[int]] = {name: set() for name in CLERKS}
        self.first_urgent: list[bool] = []
        self.mended = False
        self._threads = [
            threading.Thread(target=self._work, args=[name], daemon=True) for name in CLERKS
        ]
        for thread in self._threads:
            thread.start()

    def _work(self, name: str) -> None:
        with suppress(MailboxClosedError):
            while True:
                try:
                    messages = self._box.receive(visibility_timeout=10, wait_time_seconds=2)
                    for message in messages:
                        self._pack(name, message)
                except MailboxClosedError:
                    raise
                except MailboxError:  # the broker can't be reached
                    time.sleep(0.2)

    def _pack(self, name: str, message: Message[Order]) -> None:
        time.sleep(CLERKS[name])
        if message.body.grams == 0 and not self.mended:
            message.nack()  # a poison message, which becomes a dead letter
        elif message.acknowledge():
            with self._lock:
                self.done[name].add(message.body.number)
                self.first_urgent.append(message.priority == URGENT)

    @property
    def packed(self) -> int:
        with self._lock:
            return len(set().union(*self.done.values()))

    def stop(self) -> None:
        self._box.close()
        for thread in self._threads:
            thread.join()


def is_order(message: Message[Order | Undecodable]) -> bool:
    return isinstance(message.body, Order)
