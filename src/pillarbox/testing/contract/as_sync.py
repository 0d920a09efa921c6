"""An `AsyncMailbox` with the face of a `Mailbox`, so that one suite tests both kinds.

Each verb runs as a task of an event loop in a thread of its own; the caller blocks for it.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from typing import Any, Self, TypeVar

from pillarbox.mailbox.message import AsyncMessage
from pillarbox.mailbox.protocol import AsyncMailbox, State, Stats

R = TypeVar("R")

_CLOSE_SECONDS_MAX = 10


class EventLoopThread:
    """A running event loop, and a way to call into it from any thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def call(self, work: Coroutine[Any, Any, R]) -> R:
        """Run this on the loop; its answer, or its error."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def close(self) -> None:
        """Cancel what still runs and end the thread."""
        self.call(_cancel_others())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_CLOSE_SECONDS_MAX)
        self._loop.close()


async def _cancel_others() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


class SyncMessage:
    """An `AsyncMessage` whose verbs block. What it says is what the message behind it says."""

    __slots__ = ("_call", "_message")

    _call: Callable[..., Any]
    _message: AsyncMessage[Any]

    def __init__(self, message: AsyncMessage[Any], call: Callable[..., Any]) -> None:
        object.__setattr__(self, "_message", message)
        object.__setattr__(self, "_call", call)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._message, name)

    def __setattr__(self, name: str, value: object) -> None:
        setattr(self._message, name, value)  # which refuses, as any message must

    def __repr__(self) -> str:
        return repr(self._message)

    def acknowledge(self, **options: Any) -> bool:
        answer: bool = self._call(self._message.acknowledge(**options))
        return answer

    def nack(self, **options: Any) -> bool:
        answer: bool = self._call(self._message.nack(**options))
        return answer

    def extend_visibility(self, timeout: float, **options: Any) -> bool:
        answer: bool = self._call(self._message.extend_visibility(timeout, **options))
        return answer

    def release(self, **options: Any) -> bool:
        answer: bool = self._call(self._message.release(**options))
        return answer

    def reject(self, reason: str, **options: Any) -> bool:
        answer: bool = self._call(self._message.reject(reason, **options))
        return answer

    def reply(self, body: Any) -> str:
        answer: str = self._call(self._message.reply(body))
        return answer


class SyncFace:
    """An `AsyncMailbox` whose verbs block."""

    def __init__(self, mailbox: AsyncMailbox[Any], loop: EventLoopThread) -> None:
        self._mailbox = mailbox
        self._loop = loop
        loop.call(mailbox.__aenter__())

    @property
    def name(self) -> str:
        return self._mailbox.name

    @property
    def closed(self) -> bool:
        return self._mailbox.closed

    @property
    def dead_letters(self) -> SyncFace | None:
        dead = self._mailbox.dead_letters
        return None if dead is None else SyncFace(dead, self._loop)

    def send(self, body: Any, **options: Any) -> str:
        return self._loop.call(self._mailbox.send(body, **options))

    def send_many(self, bodies: Iterable[Any], **options: Any) -> list[str]:
        return self._loop.call(self._mailbox.send_many(bodies, **options))

    def receive(self, **options: Any) -> Sequence[Any]:
        return self._faces(self._loop.call(self._mailbox.receive(**options)))

    def messages(self, **options: Any) -> Iterator[Any]:
        messages: Any = self._mailbox.messages(**options)

        async def following() -> AsyncMessage[Any] | None:
            return await anext(messages, None)

        try:
            while (message := self._loop.call(following())) is not None:
                yield SyncMessage(message, self._loop.call)
        finally:
            self._loop.call(messages.aclose())

    def acknowledge_many(self, messages: Iterable[Any]) -> list[bool]:
        return self._loop.call(self._mailbox.acknowledge_many(_behind(messages)))

    def nack_many(self, messages: Iterable[Any], **options: Any) -> list[bool]:
        return self._loop.call(self._mailbox.nack_many(_behind(messages), **options))

    def extend_visibility_many(self, messages: Iterable[Any], timeout: float) -> list[bool]:
        return self._loop.call(self._mailbox.extend_visibility_many(_behind(messages), timeout))

    def release_many(self, messages: Iterable[Any]) -> list[bool]:
        return self._loop.call(self._mailbox.release_many(_behind(messages)))

    def purge(self) -> int:
        return self._loop.call(self._mailbox.purge())

    def approximate_count(self) -> int:
        return self._loop.call(self._mailbox.approximate_count())

    def stats(self) -> Stats:
        return self._loop.call(self._mailbox.stats())

    def peek(self, max_messages: int = 10, *, state: State = "ready") -> Sequence[Any]:
        return self._faces(self._loop.call(self._mailbox.peek(max_messages, state=state)))

    def delete(self, ids: Iterable[str]) -> int:
        return self._loop.call(self._mailbox.delete(ids))

    def redrive(
        self,
        ids: Iterable[str] | None = None,
        *,
        where: Callable[[Any], bool] | None = None,
        to: str | None = None,
    ) -> int:
        return self._loop.call(self._mailbox.redrive(ids, where=where, to=to))

    def close(self) -> None:
        self._loop.call(self._mailbox.close())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _faces(self, messages: Iterable[AsyncMessage[Any]]) -> list[SyncMessage]:
        return [SyncMessage(message, self._loop.call) for message in messages]


def _behind(messages: Iterable[Any]) -> Iterable[Any]:
    """The messages behind these faces, one by one as the caller's iterable gives them."""
    return (m._message if isinstance(m, SyncMessage) else m for m in messages)
