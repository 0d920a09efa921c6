"""Context-manager mixins that call `close()` on exit."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Self


class Closing(ABC):
    """Calls `close` at the end of a `with` block."""

    __slots__ = ()

    @abstractmethod
    def close(self) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class AsyncClosing(ABC):
    """Calls `open` at the start of an `async with` block, and `close` at its end."""

    __slots__ = ()

    async def open(self) -> Self:
        """Connect, if necessary before use. Does nothing by default."""
        return self

    @abstractmethod
    async def close(self) -> None: ...

    async def __aenter__(self) -> Self:
        try:
            return await self.open()
        except BaseException:
            await self.close()
            raise

    async def __aexit__(self, *error: object) -> None:
        await self.close()
