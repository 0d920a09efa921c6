"""One SQS request under way: who asks, in which protocol, and how it is answered."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Struct

from pillarbox.broker.access import Principal
from pillarbox.broker.catalogue import BrokerQueue
from pillarbox.broker.errors import SqsError, of_mailbox
from pillarbox.broker.http import Request, Response
from pillarbox.core.errors import MailboxError

if TYPE_CHECKING:
    from pillarbox.broker.server import Broker

Result = Mapping[str, Any] | None


class Wire(Protocol):
    """One of the two protocols."""

    def result(self, action: str, result: Result, request_id: str) -> Response: ...
    def error(self, error: SqsError, request_id: str) -> Response: ...


class Call(Struct, eq=False, gc=False):
    """A request on its way through an action."""

    broker: Broker
    request: Request
    wire: Wire
    action: str
    principal: Principal

    def url_in(self, url: str | None) -> str | None:
        """The URL of the queue that this request is about: it may have been sent to that URL."""
        return self.request.path if url is None and len(self.request.path) > 1 else url

    def queue(self, url: str | None) -> BrokerQueue:
        """The queue that this request is about."""
        return self.broker.catalogue.by_url(self.url_in(url))

    def url_of(self, name: str) -> str:
        return f"{self.request.origin}/{self.broker.config.account}/{name}"

    def answer(self, result: Result, unsent: Callable[[], object] | None = None) -> Response:
        """The answer, held back until all that was written for it is confirmed."""
        broker = self.broker
        response = self.wire.result(self.action, result, broker.next_request_id())
        response.unsent = unsent
        if broker.written:
            broker.confirmed(response)
            response.otherwise = self.unconfirmed
        return response

    def unconfirmed(self, error: Exception) -> Response:
        """The disk failed: nobody may believe that this was done."""
        known = of_mailbox(error) if isinstance(error, MailboxError) else None
        return self.fail(known or SqsError("ServiceUnavailable", str(error)))

    def fail(self, error: SqsError) -> Response:
        self.broker.metrics.errors[error.kind.code] += 1
        return self.wire.error(error, self.broker.next_request_id())
