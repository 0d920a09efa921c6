"""What `RedisMailbox` and `AsyncRedisMailbox` are alike in: all that needs no server."""

from __future__ import annotations

from typing import Any, Generic, Self, TypeVar, get_args

from pillarbox.codec import codec_for
from pillarbox.core import limits
from pillarbox.core.errors import InvalidParameterError
from pillarbox.mailbox.message import Details
from pillarbox.mailbox.redis import wire
from pillarbox.mailbox.redis.opening import Opening
from pillarbox.mailbox.redis.queue import RedisQueue
from pillarbox.mailbox.redis.verbs import Verbs

T = TypeVar("T")
L = TypeVar("L")


class Face(Generic[T, L]):
    """A mailbox with its verbs and the link that runs them."""

    _verbs: Verbs[T]
    _link: L
    _owns_link: bool

    def _set_up(self, name: str, body_type: Any, opening: Opening, link: L) -> None:
        limits.queue_name(name)
        queue = RedisQueue(name, opening.scripts, opening.replicas, opening.replica_seconds)
        self._verbs = Verbs(queue, body_type, opening.max_body_bytes)
        self._link = link
        self._owns_link = True

    def __set_type__(self, alias: Any) -> None:
        """`RedisMailbox[Order]("orders", ...)`: the type in brackets is the body's type."""
        (body_type,) = get_args(alias)
        if not isinstance(body_type, TypeVar):
            self._verbs.use(codec_for(body_type))

    # `typing` notes the alias on each object made through it, as this attribute.
    __orig_class__ = property(fset=__set_type__)

    @property
    def name(self) -> str:
        """The queue's name."""
        return self._verbs.queue.name

    @property
    def closed(self) -> bool:
        """True after `close`."""
        return self._verbs.closed

    @property
    def dead_letters(self) -> Self | None:
        """The mailbox of this one's dead letters, if it has a policy."""
        settings = self._verbs.settings
        return None if settings is None or settings.dead is None else self._beside(settings.dead)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"

    def _beside(self, name: str) -> Self:
        """A mailbox of the same type on another queue, over the same connections."""
        other = object.__new__(type(self))
        other._verbs = self._verbs.beside(name)
        other._link = self._link
        other._owns_link = False
        return other

    def _answers(self, to: str | None) -> Verbs[Any]:
        """The verbs of the mailbox that a reply goes to."""
        if to is None:
            raise InvalidParameterError(
                "reply_to", to, "named by the sender of the message that is replied to"
            )
        return self._verbs.beside(limits.queue_name(to, "reply_to"))

    # What messages ask of the mailbox that delivered them.

    def _message_id(self, delivery: wire.Delivery) -> str:
        return delivery.id.decode()

    def _receipt_handle(self, delivery: wire.Delivery) -> str:
        return wire.handle(delivery)

    def _details(self, delivery: wire.Delivery) -> Details:
        return wire.details(delivery)
