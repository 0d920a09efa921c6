"""The AWS JSON 1.0 protocol: the action in a header, parameters and result as JSON."""

from __future__ import annotations

from typing import Final

import msgspec

from pillarbox.broker.errors import SqsError
from pillarbox.broker.http import Response
from pillarbox.broker.sqs_request import Result

TARGET_PREFIX: Final = "AmazonSQS."
_TYPE: Final = "application/x-amz-json-1.0"
_HEADERS: Final = {"Content-Type": _TYPE}
_encode = msgspec.json.Encoder().encode


# Depth, numbers and UTF-8 are checked by the decoder of an action's parameters.
UNREADABLE: Final = (msgspec.MsgspecError, RecursionError, ValueError)


def unreadable(error: Exception) -> SqsError:
    """Return the error for parameters that can't be parsed."""
    if isinstance(error, msgspec.ValidationError):
        return SqsError("SerializationException", f"Bad parameter: {error}")
    return SqsError("SerializationException", f"The body is not valid JSON: {error}")


class JsonResponse(Response, eq=False, gc=False):
    """A successful response, with a faster `head` because nearly all responses are one."""

    request_id: str = ""

    def head(self, date: str, keep_alive: bool, length: int | None) -> bytes:
        close = "" if keep_alive else "Connection: close\r\n"
        return (
            f"HTTP/1.1 200 OK\r\nDate: {date}\r\nx-amzn-RequestId: {self.request_id}\r\n"
            f"Content-Type: {_TYPE}\r\n{close}Content-Length: {length}\r\n\r\n"
        ).encode("latin-1")


class JsonFormat:
    """Writes responses as JSON."""

    def result(self, action: str, result: Result, request_id: str) -> Response:
        body = b"{}" if result is None else _encode(result)
        return JsonResponse(200, body, _HEADERS, None, None, None, request_id)

    def error(self, error: SqsError, request_id: str) -> Response:
        headers = {
            "x-amzn-RequestId": request_id,
            "x-amzn-query-error": error.query_error,
            "Content-Type": _TYPE,
        }
        body = _encode({"__type": error.kind.shape, "message": error.message})
        return Response(error.kind.status, body, headers)


def refusal(status: int, code: str, message: str) -> Response:
    """Return the response for a request that did not reach an action."""
    fault = "Sender" if status < 500 else "Receiver"
    # A content type that browsers display, for people who open the URL.
    headers = {"Content-Type": "application/json", "x-amzn-query-error": f"{code};{fault}"}
    body = _encode({"__type": f"com.amazon.coral.service#{code}", "message": message})
    return Response(status, body, headers)
