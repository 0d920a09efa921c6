"""Messages of a PostgreSQL mailbox: they can be acknowledged in the caller's transaction."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

from pillarbox.mailbox.message import AsyncMessage, Message

T = TypeVar("T")


class PostgresMessage(Message[T], Generic[T], frozen=True, eq=False, gc=False):
    """`Message`, whose `acknowledge` may take part in a transaction."""

    def acknowledge(self, *, strict: bool = False, connection: Any = None) -> bool:
        """The work is done: delete the message.

        With `connection` this happens if and when its transaction commits: together with what the
        work wrote, or not at all. Use `strict=True` there, so that a delivery that is over raises
        and the transaction is rolled back.
        """
        if connection is None:
            return super().acknowledge(strict=strict)
        answer: bool = self._mailbox.acknowledge_many([self], connection=connection)[0]
        return self._strictly(answer, "acknowledge") if strict else answer


class AsyncPostgresMessage(AsyncMessage[T], Generic[T], frozen=True, eq=False, gc=False):
    """`AsyncMessage`, whose `acknowledge` may take part in a transaction."""

    async def acknowledge(self, *, strict: bool = False, connection: Any = None) -> bool:
        """The work is done: delete the message, with `connection` as part of its transaction."""
        if connection is None:
            return await super().acknowledge(strict=strict)
        answer: bool = (await self._mailbox.acknowledge_many([self], connection=connection))[0]
        return self._strictly(answer, "acknowledge") if strict else answer
