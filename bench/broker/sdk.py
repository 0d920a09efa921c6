"""Requests as AWS's SDKs send them: signed, each with a date and an invocation id of its own.

The fields are those of a request of boto3, in its order. No two requests are alike.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import time
from functools import lru_cache
from itertools import count

REGION = "us-east-1"
KEY_ID, SECRET = "bench", "a secret of the benchmarks"
_TYPE = "application/x-amz-json-1.0"
_SIGNED = "content-type;host;x-amz-date;x-amz-target;x-amzn-query-mode"
_AGENT = (
    "Boto3/1.43.117 md/Botocore#1.43.117 ua/2.1 os/linux#6.18.44 md/arch#x86_64 "
    "lang/python#3.11.7 md/pyimpl#CPython m/b,Z,e,N,D cfg/retry-mode#legacy Botocore/1.43.117"
)


class Requests:
    """The requests of one client."""

    def __init__(self, host: str, queue: str) -> None:
        self._host = host
        self._url = f"http://{host}/000000000000/{queue}"
        self._numbers = count(int(time.time() * 1e6))

    def create(self, queue: str) -> bytes:
        return self._request("CreateQueue", QueueName=queue)

    def send(self, body: str, batch: int = 1) -> bytes:
        """One SendMessage, or one SendMessageBatch."""
        if batch == 1:
            return self._request("SendMessage", QueueUrl=self._url, MessageBody=body)
        entries = [{"Id": str(number), "MessageBody": body} for number in range(batch)]
        return self._request("SendMessageBatch", QueueUrl=self._url, Entries=entries)

    def receive(self) -> bytes:
        return self._request("ReceiveMessage", QueueUrl=self._url, MaxNumberOfMessages=1)

    def delete(self, handle: str) -> bytes:
        return self._request("DeleteMessage", QueueUrl=self._url, ReceiptHandle=handle)

    def _request(self, action: str, **parameters: object) -> bytes:
        body = json.dumps(parameters)
        target, number = f"AmazonSQS.{action}", next(self._numbers)
        at = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
        scope = f"{at[:8]}/{REGION}/sqs/aws4_request"
        signature = self._sign(target, at, scope, body)
        return (
            f"POST / HTTP/1.1\r\nHost: {self._host}\r\nAccept-Encoding: identity\r\n"
            f"X-Amz-Target: {target}\r\nContent-Type: {_TYPE}\r\nx-amzn-query-mode: true\r\n"
            f"User-Agent: {_AGENT}\r\nX-Amz-Date: {at}\r\n"
            f"Authorization: AWS4-HMAC-SHA256 Credential={KEY_ID}/{scope}, "
            f"SignedHeaders={_SIGNED}, Signature={signature}\r\n"
            f"amz-sdk-invocation-id: 69c56c7d-658c-4fa1-9dca-{number:012x}\r\n"
            f"amz-sdk-request: attempt=1\r\nContent-Length: {len(body)}\r\n\r\n{body}"
        ).encode()

    def _sign(self, target: str, at: str, scope: str, body: str) -> str:
        digest = hashlib.sha256(body.encode()).hexdigest()
        canonical = (
            f"POST\n/\n\ncontent-type:{_TYPE}\nhost:{self._host}\nx-amz-date:{at}\n"
            f"x-amz-target:{target}\nx-amzn-query-mode:true\n\n{_SIGNED}\n{digest}"
        )
        hashed = hashlib.sha256(canonical.encode()).hexdigest()
        text = f"AWS4-HMAC-SHA256\n{at}\n{scope}\n{hashed}"
        return hmac.digest(_signing_key(scope), text.encode(), "sha256").hex()


@lru_cache(2)
def _signing_key(scope: str) -> bytes:
    """It is good for a day."""
    key = f"AWS4{SECRET}".encode()
    for part in scope.split("/"):
        key = hmac.digest(key, part.encode(), "sha256")
    return key
