"""Handlers that the tests run in processes of their own; they tell what they do in a file.

The file is named by SHOP_TOLD. S: a handler has started. E: it has ended.
"""

from __future__ import annotations

import asyncio
import os
import time

from pillarbox.worker import Job


def tell(letter: str, job: Job[str]) -> None:
    line = f"{letter} {job.body} {job.delivery_count} {os.getpid()}\n"
    with open(os.environ["SHOP_TOLD"], "ab", buffering=0) as file:
        file.write(line.encode())


def pack(order: str, job: Job[str]) -> None:
    """Body: `name seconds`; the rest tells what goes wrong."""
    tell("S", job)
    name, _, seconds = order.partition(" ")
    if name == "poison":
        os._exit(9)
    until = time.monotonic() + float(seconds or 0)
    while time.monotonic() < until and not (name == "polite" and job.stopping):
        time.sleep(0.01)
    tell("E", job)


async def pack_async(order: str, job: Job[str]) -> None:
    tell("S", job)
    await asyncio.sleep(float(order.partition(" ")[2] or 0))
    tell("E", job)


def hold(order: str, job: Job[str]) -> None:
    """Hold it for so long, or until it is lost; then tell what an acknowledge answers."""
    tell("S", job)
    until = time.monotonic() + float(order.partition(" ")[2])
    while time.monotonic() < until and job.lost is None:
        time.sleep(0.01)
    tell("T" if job.message.acknowledge() else "F", job)
