"""The workload: orders of customers, and the clerks who handle them."""

from __future__ import annotations

import datetime
import random
import threading
import time
from collections import Counter
from functools import partial
from typing import Any

from msgspec import Struct

from pillarbox import Mailbox, Message, Undecodable
from pillarbox.worker import Job, Retry, Worker

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
    """Two workers of different speed; orders that can't be packed are retried."""

    def __init__(self, box: Mailbox[Order]) -> None:
        self._box = box
        self._lock = threading.Lock()
        self.done: dict[str, set[int]] = {name: set() for name in CLERKS}
        self.first_urgent: list[bool] = []
        self.mended = False
        self._workers = [Worker(box, partial(self._pack, name)) for name in CLERKS]
        self._threads = [threading.Thread(target=each.run, daemon=True) for each in self._workers]
        for thread in self._threads:
            thread.start()

    def _pack(self, name: str, order: Order, job: Job[Order]) -> None:
        time.sleep(CLERKS[name])
        if order.grams == 0 and not self.mended:
            raise Retry  # a poison message, which becomes a dead letter
        with self._lock:
            self.done[name].add(order.number)
            self.first_urgent.append(job.message.priority == URGENT)

    @property
    def packed(self) -> int:
        with self._lock:
            return len(set().union(*self.done.values()))

    def stop(self) -> None:
        for worker in self._workers:
            worker.stop()
        for thread in self._threads:
            thread.join()
        self._box.close()


def is_order(message: Message[Order | Undecodable]) -> bool:
    return isinstance(message.body, Order)
