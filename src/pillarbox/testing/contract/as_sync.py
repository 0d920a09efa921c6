"""Adapts an `AsyncMailbox` to the interface of a `Mailbox`, so that one suite tests both kinds.

Each method runs as a task of an event loop in a dedicated thread; the caller blocks until it ends.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterable, Iterator
from typing import Any, Self, TypeVar

from pillarbox.mailbox.message import AsyncMessage
from pillarbox.mailbox.protocol import AsyncMailbox

R = TypeVar("R")

_CLOSE_SECONDS_MAX = 10


class EventLoopThread:
    """A running event loop, and a way to call into it from any thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def call(self, work: Coroutine[Any, Any, R]) -> R:
        """Run a coroutine on the loop; return its result or raise its error."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def close(self) -> None:
        """Cancel running tasks and end the thread."""
        self.call(_cancel_others())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_CLOSE_SECONDS_MAX)
        self._loop.close()


async def _cancel_others() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


def _verb(name: str) -> Callable[..., Any]:
    """Return a blocking version of an async method."""

    def verb(self: SyncMessage | SyncMailbox, /, *arguments: Any, **options: Any) -> Any:
        answer = self._call(getattr(self._wrapped, name)(*arguments, **options))
        if name in ("receive", "peek"):
            return [SyncMessage(message, self._call) for message in answer]
        return answer

    return verb


def _verb_of_messages(name: str) -> Callable[..., Any]:
    """Return a blocking version of an async method whose first argument is messages."""

    def verb(self: SyncMailbox, messages: Iterable[Any], *arguments: Any, **options: Any) -> Any:
        given = (m._wrapped if isinstance(m, SyncMessage) else m for m in messages)
        return self._call(getattr(self._wrapped, name)(given, *arguments, **options))

    return verb


class SyncMessage:
    """An `AsyncMessage` with blocking methods, and otherwise the same attributes."""

    __slots__ = ("_call", "_wrapped")

    _wrapped: AsyncMessage[Any]
    _call: Callable[..., Any]

    def __init__(self, message: AsyncMessage[Any], call: Callable[..., Any]) -> None:
        object.__setattr__(self, "_wrapped", message)
        object.__setattr__(self, "_call", call)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._wrapped, name)

    def __setattr__(self, name: str, value: object) -> None:
        setattr(self._wrapped, name, value)  # which raises, because messages are immutable

    def __repr__(self) -> str:
        return repr(self._wrapped)

    acknowledge = _verb("acknowledge")
    nack = _verb("nack")
    extend_visibility = _verb("extend_visibility")
    release = _verb("release")
    reject = _verb("reject")
    reply = _verb("reply")


class SyncMailbox:
    """An `AsyncMailbox` with blocking methods."""

    def __init__(self, mailbox: AsyncMailbox[Any], loop: EventLoopThread) -> None:
        self._wrapped = mailbox
        self._loop = loop
        self._call = loop.call
        loop.call(mailbox.__aenter__())

    @property
    def name(self) -> str:
        return self._wrapped.name

    @property
    def closed(self) -> bool:
        return self._wrapped.closed

    @property
    def dead_letters(self) -> SyncMailbox | None:
        dead = self._wrapped.dead_letters
        return None if dead is None else SyncMailbox(dead, self._loop)

    def messages(self, **options: Any) -> Iterator[Any]:
        messages: Any = self._wrapped.messages(**options)

        async def following() -> AsyncMessage[Any] | None:
            return await anext(messages, None)

        try:
            while (message := self._call(following())) is not None:
                yield SyncMessage(message, self._call)
        finally:
            self._call(messages.aclose())

    send = _verb("send")
    send_many = _verb("send_many")
    receive = _verb("receive")
    acknowledge_many = _verb_of_messages("acknowledge_many")
    nack_many = _verb_of_messages("nack_many")
    extend_visibility_many = _verb_of_messages("extend_visibility_many")
    release_many = _verb_of_messages("release_many")
    purge = _verb("purge")
    approximate_count = _verb("approximate_count")
    stats = _verb("stats")
    peek = _verb("peek")
    delete = _verb("delete")
    redrive = _verb("redrive")
    close = _verb("close")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._call(self._wrapped.close())
