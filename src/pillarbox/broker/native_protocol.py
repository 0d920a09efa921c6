"""Parsing, authorization and errors of the private protocol."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from pillarbox.broker.access import Principal
from pillarbox.broker.errors import SqsError, for_sqs_only, of_mailbox
from pillarbox.broker.http import Request, Response
from pillarbox.broker.rights import NATIVE
from pillarbox.core.errors import InvalidParameterError, MailboxError
from pillarbox.mailbox.broker import wire
from pillarbox.mailbox.broker.errors import AccessDeniedError, failed

if TYPE_CHECKING:
    from pillarbox.broker.server import Broker


HEADERS: Final = {"Content-Type": "application/msgpack"}


def response(results: Sequence[wire.Result]) -> Response:
    return Response(200, wire.encode(results), HEADERS)


class NativeProtocol:
    """Reads `POST /pillarbox/v1/{queue}`, checks rights and reports errors."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def _read(self, request: Request) -> tuple[str, Principal, wire.Request] | Response:
        """Return the queue, the sender and the commands, or the response that refuses them."""
        version, _, name = request.path.removeprefix("/pillarbox/").partition("/")
        if request.method != "POST" or version != "v1":
            return Response(404, b"POST /pillarbox/v1/{queue} is all there is here")
        if request.headers.get("content-type") != "application/msgpack":
            return Response(415, b"the body must be application/msgpack")
        try:
            principal = self._broker.access.known(request)
            if principal.has_own_account:
                raise for_sqs_only()
            return name, principal, wire.decode_request(request.body)
        except SqsError as error:
            self._broker.metrics.errors[error.kind.code] += 1
            return Response(401, error.message.encode())
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            wrong = InvalidParameterError("request", f"{len(request.body):,} bytes", str(error))
            return response([self._failed(wrong)])

    def _check(self, command: wire.Command, name: str, principal: Principal) -> None:
        """Raise unless the principal may do this; rights are named after SQS actions."""
        self._broker.metrics.requests[NATIVE[type(command)][0]] += 1
        self._broker.rights.check_native(principal, command, name)

    def _failed(self, error: MailboxError | SqsError) -> wire.Failed:
        """Return the result for an error, and count it under its SQS code."""
        known = error if isinstance(error, SqsError) else of_mailbox(error)
        self._broker.metrics.errors[known.kind.code] += 1
        if isinstance(error, MailboxError):
            return failed(error)
        kind = AccessDeniedError if error.name == "AccessDenied" else MailboxError
        return failed(kind(error.message))
