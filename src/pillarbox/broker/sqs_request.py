"""An SQS request: its sender, its protocol, and its response."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Struct

from pillarbox.broker.access import Principal
from pillarbox.broker.errors import SqsError, of_mailbox
from pillarbox.broker.http import Request, Response
from pillarbox.broker.queue import BrokerQueue
from pillarbox.core.errors import MailboxError

if TYPE_CHECKING:
    from pillarbox.broker.server import Broker

Result = dict[str, Any] | None


class ResponseFormat(Protocol):
    """The response format of a protocol."""

    def result(self, action: str, result: Result, request_id: str) -> Response: ...
    def error(self, error: SqsError, request_id: str) -> Response: ...


class SqsRequest(Struct, eq=False, gc=False):
    """A request, passed to its action."""

    broker: Broker
    http: Request
    format: ResponseFormat
    action: str
    principal: Principal
    namespace: str  # of region and account: a prefix of queue names in the store
    unsent: Callable[[], object] | None = None  # called if the client disconnects

    def url_in(self, url: str | None) -> str | None:
        """Return the queue's URL, which may be the path that the request was posted to."""
        return self.http.path if url is None and len(self.http.path) > 1 else url

    def queue(self, url: str | None, *, fresh: bool = False) -> Coroutine[Any, Any, BrokerQueue]:
        """Return the queue of this request."""
        return self.broker.queues.by_url(self, url or self.url_in(url), fresh=fresh)

    def url_of(self, name: str) -> str:
        """Return the URL of a queue, by its name in the store."""
        return self.http.origin + self.broker.names.path(name)

    def succeed(self, result: Result, *, writes: bool) -> Response:
        """Return the response, which waits until the writes of the action are confirmed."""
        broker = self.broker
        response = self.format.result(self.action, result, broker.next_request_id())
        response.unsent = self.unsent
        if writes:
            response.confirmation = broker.confirmation()
            response.if_unconfirmed = self.unconfirmed
        return response

    def fail(self, error: SqsError | MailboxError) -> Response:
        known = error if isinstance(error, SqsError) else of_mailbox(error)
        self.broker.metrics.errors[known.kind.code] += 1
        return self.format.error(known, self.broker.next_request_id())

    def unconfirmed(self, error: Exception) -> Response:
        """Return the error response for writes that the disk failed to confirm."""
        if not isinstance(error, MailboxError):
            return self.fail(SqsError("ServiceUnavailable", str(error)))
        return self.fail(error)
