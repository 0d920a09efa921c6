"""A mailbox that is open: its queue, how its bodies travel, and what its callers may ask."""

from __future__ import annotations

from typing import Any, Generic, NoReturn, TypeVar

from pillarbox.codec import Codec, codec_for
from pillarbox.core import limits
from pillarbox.core.errors import MailboxClosedError
from pillarbox.mailbox.answers import reads_json
from pillarbox.mailbox.redis.queue import RedisQueue, Settings

T = TypeVar("T")

US_NS = 1_000  # nanoseconds in the unit of the scripts


class Opened(Generic[T]):
    """What sending, receiving and the rest of the verbs share."""

    def __init__(self, queue: RedisQueue, body_type: Any, max_body_bytes: int) -> None:
        self.queue = queue
        self.max_body_bytes = max_body_bytes
        self.closed = False
        self.settings: Settings | None = None
        self.use(codec_for(body_type))

    def use(self, codec: Codec[T]) -> None:
        self.codec = codec
        self._reads_json = reads_json(codec)
        self._encode = codec.encode
        self._pack = codec.quick_encode
        self._unpack = codec.quick_decode

    def microseconds(self, value: float, parameter: str = "visibility_timeout") -> int:
        """A time from a caller, never rounded down."""
        return -(-limits.seconds(parameter, value, limits.VISIBILITY_SECONDS_MAX) // US_NS)

    def refuse_if_closed(self) -> None:
        if self.closed:
            self._refuse()

    def _refuse(self) -> NoReturn:
        raise MailboxClosedError(
            f"mailbox {self.queue.name!r} was closed: open it again to send or receive"
        )
