"""What `SQSMailbox` and `AsyncSQSMailbox` are alike in: all that needs no call."""

from __future__ import annotations

from typing import Any, Generic, TypeVar, get_args

from pillarbox.codec import codec_for
from pillarbox.mailbox.message import Details
from pillarbox.mailbox.sqs.receiving import Delivery
from pillarbox.mailbox.sqs.verbs import Verbs

T = TypeVar("T")


class Face(Generic[T]):
    """A mailbox with its verbs."""

    _verbs: Verbs[T]

    def __set_type__(self, alias: Any) -> None:
        """`SQSMailbox[Order]("orders")`: the type in brackets is the body's type."""
        (body_type,) = get_args(alias)
        if not isinstance(body_type, TypeVar):
            self._verbs.codec = codec_for(body_type)

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

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"

    # What messages ask of the mailbox that delivered them.

    def _message_id(self, delivery: Delivery) -> str:
        return delivery.id

    def _receipt_handle(self, delivery: Delivery) -> str:
        return delivery.handle

    def _details(self, delivery: Delivery) -> Details:
        return self._verbs.details(delivery)
