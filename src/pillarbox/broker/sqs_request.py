"""One SQS request: who sent it, in which protocol, and how it is answered."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Struct

from pillarbox.broker.access import Principal
from pillarbox.broker.errors import SqsError, of_mailbox
from pillarbox.broker.http import Request, Response
from pillarbox.broker.queue import BrokerQueue
from pillarbox.broker.queue_names import plain_name
from pillarbox.core.errors import MailboxError

if TYPE_CHECKING:
    from pillarbox.broker.server import Broker

Result = dict[str, Any] | None


class ResponseFormat(Protocol):
    """How one of the two protocols writes an answer."""

    def result(self, action: str, result: Result, request_id: str) -> Response: ...
    def error(self, error: SqsError, request_id: str) -> Response: ...


class SqsRequest(Struct, eq=False, gc=False):
    """A request on its way through an action."""

    broker: Broker
    http: Request
    format: ResponseFormat
    action: str
    principal: Principal
    namespace: str  # that of the region and the account, which the store's names begin with
    unsent: Callable[[], object] | None = None  # if the client hangs up before it is answered

    def url_in(self, url: str | None) -> str | None:
        """The URL of the queue that this request is about: it may have been sent to that URL."""
        return self.http.path if url is None and len(self.http.path) > 1 else url

    def queue(self, url: str | None, *, fresh: bool = False) -> Coroutine[Any, Any, BrokerQueue]:
        """The queue that this request is about."""
        return self.broker.queues.by_url(self, url or self.url_in(url), fresh=fresh)

    def url_of(self, name: str) -> str:
        """The URL of a queue, by its name in the store."""
        account = self.broker.names.account_of(name)
        return f"{self.http.origin}/{account}/{plain_name(name)}"

    def succeed(self, result: Result, *, writes: bool) -> Response:
        """The answer, which waits until what the action wrote is confirmed."""
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
        """The disk failed: nobody may believe that this was done."""
        if not isinstance(error, MailboxError):
            return self.fail(SqsError("ServiceUnavailable", str(error)))
        return self.fail(error)
