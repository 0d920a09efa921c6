"""SQS's JSON 1.0 protocol: the action in a header, its parameters and result as JSON."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from pillarbox.broker.call import Result
from pillarbox.broker.errors import SqsError
from pillarbox.broker.http import Response

TARGET_PREFIX: Final = "AmazonSQS."
_TYPE: Final = "application/x-amz-json-1.0"
_encode = msgspec.json.Encoder().encode


def parameters(body: bytes, decoder: msgspec.json.Decoder[Any]) -> Any:
    """The parameters of an action. Depth, numbers and UTF-8 are checked by the decoder."""
    try:
        return decoder.decode(body or b"{}")
    except msgspec.ValidationError as error:
        raise SqsError("SerializationException", f"Bad parameter: {error}") from None
    except (msgspec.DecodeError, RecursionError, ValueError) as error:
        raise SqsError("SerializationException", f"The body is not valid JSON: {error}") from None


class JsonWire:
    """Answers in JSON."""

    def result(self, action: str, result: Result, request_id: str) -> Response:
        body = b"{}" if result is None else _encode(result)
        return Response(200, body, {"x-amzn-RequestId": request_id, "Content-Type": _TYPE})

    def error(self, error: SqsError, request_id: str) -> Response:
        headers = {
            "x-amzn-RequestId": request_id,
            "x-amzn-query-error": error.query_error,
            "Content-Type": _TYPE,
        }
        body = _encode({"__type": error.kind.shape, "message": error.message})
        return Response(error.kind.status, body, headers)


def refusal(status: int, code: str, message: str) -> Response:
    """What a client is told that did not get as far as an action."""
    fault = "Sender" if status < 500 else "Receiver"
    headers = {"Content-Type": _TYPE, "x-amzn-query-error": f"{code};{fault}"}
    body = _encode({"__type": f"com.amazon.coral.service#{code}", "message": message})
    return Response(status, body, headers)
