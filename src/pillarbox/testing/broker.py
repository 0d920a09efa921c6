"""A real broker for tests, on a free port, in a thread of this process."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import uvloop
from msgspec.structs import replace

from pillarbox.broker import Broker, Config
from pillarbox.clock import Clock
from pillarbox.mailbox.shared import SharedStore

_IN_MEMORY = Config(port=0, data=None, purge_interval_seconds=0, recreate_after_seconds=0)


class RunningBroker(str):
    """The URL of a running broker, with the broker itself as an attribute."""

    __slots__ = ("broker", "loop")

    broker: Broker
    loop: asyncio.AbstractEventLoop


@contextmanager
def running_broker(
    data: str | None = None,
    durability: str = "memory",
    config: Config | None = None,
    clock: Clock | None = None,
    shared_store: SharedStore | None = None,
    **settings: Any,
) -> Iterator[RunningBroker]:
    """Run a broker within the block; yield its URL.

    Settings are those of `Config` and override `config`. Without `data`, nothing is written to
    disk. With `shared_store`, the queues are in that store.

    Examples:
        >>> from urllib.request import urlopen
        >>> with running_broker() as url:
        ...     urlopen(f"{url}/livez").read()
        b'ok\\n'
    """
    chosen = replace(config or _IN_MEMORY, **settings)
    if data is not None:
        chosen = replace(chosen, data=data, durability=durability)
    started: list[RunningBroker | BaseException] = []
    ready = threading.Event()
    stopping = asyncio.Event()

    async def serve() -> None:
        broker = Broker(chosen, clock=clock, shared_store=shared_store)
        url = RunningBroker(await broker.start())
        url.broker, url.loop = broker, asyncio.get_running_loop()
        started.append(url)
        ready.set()
        await stopping.wait()
        await broker.stop()

    def run() -> None:
        try:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(serve())
        except BaseException as error:  # noqa: BLE001 - raised in the test's thread
            started.append(error)
            ready.set()

    thread = threading.Thread(target=run, name="pillarbox-broker", daemon=True)
    thread.start()
    ready.wait()
    if isinstance(started[0], BaseException):
        raise started[0]
    try:
        yield started[0]
    finally:
        started[0].loop.call_soon_threadsafe(stopping.set)
        thread.join()
        if len(started) > 1 and isinstance(started[1], BaseException):
            raise started[1]
