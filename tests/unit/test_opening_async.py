"""R9: making an async mailbox does no I/O; opening it is awaited, and others go on meanwhile."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from pillarbox import (
    AsyncDurableMailbox,
    DurableMailbox,
    MailboxError,
    open_async_mailbox,
    open_mailbox,
)

_BEAT_SECONDS = 0.005
_BEATS = 100  # are enough to see


@contextmanager
def nobody_listens() -> Iterator[int]:
    """A port that refuses."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]


@contextmanager
def nobody_answers() -> Iterator[int]:
    """A port that takes connections, and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        yield silent.getsockname()[1]


# Each gives up by itself in the end; the tests need not wait for that.
URLS = {
    "broker": "http://127.0.0.1:{port}/orders",
    "redis": "redis://127.0.0.1:{port}/orders",
    "sqs": "sqs+http://127.0.0.1:{port}/orders",
}


class Heart:
    """Beats while a loop is free: how often, and the longest that it could not."""

    def __init__(self) -> None:
        self.beats = 0
        self.longest_gap = 0.0
        self.enough = asyncio.Event()

    async def beat(self) -> None:
        last = time.monotonic()
        while True:
            await asyncio.sleep(_BEAT_SECONDS)
            now = time.monotonic()
            last, self.longest_gap = now, max(self.longest_gap, now - last)
            self.beats += 1
            if self.beats >= _BEATS:
                self.enough.set()


async def stands_still(opening: Coroutine[Any, Any, None]) -> bool:
    """Whether the loop gets around to nothing else for most of the time that this takes."""
    heart = Heart()
    beating = asyncio.create_task(heart.beat())
    await asyncio.sleep(0)
    began = time.monotonic()
    work = asyncio.create_task(opening)
    alive = asyncio.create_task(heart.enough.wait())
    await asyncio.wait([work, alive], return_when=asyncio.FIRST_COMPLETED, timeout=60)
    elapsed = time.monotonic() - began
    await asyncio.sleep(2 * _BEAT_SECONDS)  # in which a gap that has just ended is noticed
    for task in (beating, work, alive):
        task.cancel()
    await asyncio.gather(beating, work, alive, return_exceptions=True)
    return heart.longest_gap > elapsed / 2


@pytest.mark.parametrize("place", [nobody_listens, nobody_answers], ids=lambda f: f.__name__)
@pytest.mark.parametrize("backend", URLS)
def test_R9_opening_leaves_the_event_loop_free(
    backend: str, place: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "a")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "b")

    async def main() -> bool:
        with place() as port:
            box = open_async_mailbox(URLS[backend].format(port=port), str)

            async def opening() -> None:
                with pytest.raises(MailboxError):
                    await box.open()

            still = await stands_still(opening())
            await box.close()
        for _ in range(100):  # turns, in which connections notice that the server is gone
            await asyncio.sleep(0)
        return still

    # A busy machine may stop the loop once; an `open` that blocks stops it each time.
    assert not all(asyncio.run(main()) for _ in range(3))


def test_R9_the_control_that_opens_a_blocking_mailbox_stops_the_loop() -> None:
    async def main(url: str) -> bool:
        async def opening() -> None:
            with pytest.raises(MailboxError):
                open_mailbox(url, str, patience_seconds=1)

        return await stands_still(opening())

    with nobody_listens() as port:
        assert asyncio.run(main(URLS["broker"].format(port=port)))


@pytest.mark.parametrize("url", [*URLS.values(), "file:{path}/orders", "memory:orders"])
def test_R9_making_an_async_mailbox_does_no_io(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*arguments: object, **options: object) -> None:
        pytest.fail("a socket was opened")

    monkeypatch.setattr(socket, "create_connection", refuse)
    monkeypatch.setattr(socket.socket, "connect", refuse)
    path = tmp_path / "store"
    box = open_async_mailbox(url.format(port=1, path=path), str)
    assert box.name == "orders"
    assert not box.closed
    assert not path.exists()


@pytest.mark.parametrize("how", ["async with", "open", "verb"])
def test_R9_a_mailbox_is_opened_in_any_of_three_ways(how: str, tmp_path: Path) -> None:
    async def main() -> None:
        box = AsyncDurableMailbox("orders", str, path=tmp_path)
        if how == "async with":
            async with box as same:
                assert same is box
                assert (tmp_path / "log").exists()
        elif how == "open":
            assert await box.open() is box
            assert (tmp_path / "log").exists()
        else:
            await box.send("tea")
            assert [m.body for m in await box.receive()] == ["tea"]
        await box.close()
        assert box.closed

    asyncio.run(main())


def test_R9_many_tasks_open_a_mailbox_once(tmp_path: Path) -> None:
    async def main() -> None:
        box = AsyncDurableMailbox("orders", int, path=tmp_path)
        await asyncio.gather(*(box.send(n) for n in range(20)))
        assert await box.approximate_count() == 20
        await box.close()

    asyncio.run(main())
    with DurableMailbox("orders", int, path=tmp_path) as box:  # nobody holds it any more
        assert box.approximate_count() == 20


def test_R9_a_mailbox_that_was_closed_unopened_opens_nothing(tmp_path: Path) -> None:
    async def main() -> None:
        box = AsyncDurableMailbox("orders", str, path=tmp_path / "store")
        await box.close()
        with pytest.raises(MailboxError, match="closed"):
            await box.send("tea")

    asyncio.run(main())
    assert not (tmp_path / "store").exists()


def test_R9_opening_a_store_that_fails_may_be_tried_again(tmp_path: Path) -> None:
    async def main() -> None:
        (tmp_path / "store").write_text("in the way")
        box = AsyncDurableMailbox("orders", str, path=tmp_path / "store")
        with pytest.raises((MailboxError, OSError)):
            await box.open()
        (tmp_path / "store").unlink()
        await box.send("tea")
        await box.close()

    asyncio.run(main())


Verb = Callable[[AsyncDurableMailbox[str]], Coroutine[Any, Any, Any]]
VERBS: dict[str, Verb] = {
    "send": lambda box: box.send("tea"),
    "send with a priority": lambda box: box.send("tea", priority=1),
    "send_many": lambda box: box.send_many(["tea"]),
    "receive": lambda box: box.receive(),
    "acknowledge_many": lambda box: box.acknowledge_many([]),
    "nack_many": lambda box: box.nack_many([]),
    "purge": lambda box: box.purge(),
    "stats": lambda box: box.stats(),
    "peek": lambda box: box.peek(),
    "delete": lambda box: box.delete([]),
    "redrive": lambda box: box.redrive(),
}


@pytest.mark.parametrize("verb", VERBS)
def test_R9_whichever_verb_comes_first_opens_the_mailbox(verb: str, tmp_path: Path) -> None:
    async def main() -> None:
        async with AsyncDurableMailbox("others", str, path=tmp_path):
            box = AsyncDurableMailbox("orders", str, path=tmp_path)
            await VERBS[verb](box)
            await box.close()

    asyncio.run(main())
