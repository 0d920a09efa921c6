"""`for message in mailbox.messages():` and its `async for` twin, for every mailbox."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any, Generic, TypeVar

from pillarbox.core.errors import MailboxClosedError
from pillarbox.mailbox.message import AsyncMessage, Message

T = TypeVar("T")


class Iteration(Generic[T]):
    """A mixin for mailboxes."""

    receive: Any
    release_many: Any
    closed: Any

    def messages(
        self,
        *,
        max_messages: int = 1,
        visibility_timeout: float = 30,
        wait_time_seconds: float = 20,
    ) -> Iterator[Message[T]]:
        """Receive messages one after the other, until the mailbox is closed.

        It receives up to `max_messages` at a time, and gives back uncounted those that the loop
        did not come to. Acknowledge each message yourself. With `wait_time_seconds=0` it ends
        when nothing is ready.

        Examples:
            >>> from pillarbox import open_mailbox
            >>> with open_mailbox("memory:letters", str) as letters:
            ...     _ = letters.send_many(["a", "b"])
            ...     for message in letters.messages(wait_time_seconds=0):
            ...         print(message.body, message.acknowledge())
            a True
            b True
        """
        while not self.closed:
            try:
                found: Sequence[Message[T]] = self.receive(
                    max_messages=max_messages,
                    visibility_timeout=visibility_timeout,
                    wait_time_seconds=wait_time_seconds,
                )
            except MailboxClosedError:
                return
            left = list(found)
            try:
                while left and not self.closed:
                    yield left.pop(0)
            finally:
                if left:
                    self.release_many(left)
            if not found and not wait_time_seconds:
                return


class AsyncIteration(Generic[T]):
    """`Iteration` for asyncio."""

    receive: Any
    release_many: Any
    closed: Any

    async def messages(
        self,
        *,
        max_messages: int = 1,
        visibility_timeout: float = 30,
        wait_time_seconds: float = 20,
    ) -> AsyncIterator[AsyncMessage[T]]:
        """Receive messages one after the other, until the mailbox is closed.

        It receives up to `max_messages` at a time, and gives back uncounted those that the loop
        did not come to. Acknowledge each message yourself. With `wait_time_seconds=0` it ends
        when nothing is ready.
        """
        while not self.closed:
            try:
                found: Sequence[AsyncMessage[T]] = await self.receive(
                    max_messages=max_messages,
                    visibility_timeout=visibility_timeout,
                    wait_time_seconds=wait_time_seconds,
                )
            except MailboxClosedError:
                return
            left = list(found)
            try:
                while left and not self.closed:
                    yield left.pop(0)
            finally:
                if left:
                    await self.release_many(left)
            if not found and not wait_time_seconds:
                return
