"""The encoding of replies, and the reply queues of request clients.

A handler that replies knows the reply queue by name but not its body type. So a reply is encoded
by the type of its value, and an attribute marks text: a mailbox that reads JSON then decodes it as
a `str`. Nothing is stored about the queue, so opening a mailbox on it does not change replies.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import msgspec
from msgspec import Struct

from pillarbox.codec import Codec, codec_for
from pillarbox.core.errors import SerializationError
from pillarbox.logger import logger

REPLY_TO: Final = "pillarbox.reply_to"
IN_REPLY_TO: Final = "pillarbox.in_reply_to"
FORM: Final = "pillarbox.form"
TEXT: Final = "text"  # the body is plain text, not JSON

#: Delete a reply queue after a day without a poll. A client waits at most twelve hours for a reply.
IDLE_SECONDS_MAX: Final = 86_400

#: Prefix of the reply to a rejected request, before the reason. No codec produces these bytes.
_REJECTED: Final = b"\x00pillarbox.rejected\x00"

_REPLY_QUEUE: Final = re.compile(r"[\w.-]+-replies-[0-9a-f]{16}", re.ASCII)
_NAME_CHARS: Final = 40  # of the request queue's name, used in the reply queue's name
_TEXT_TYPE: Final = codec_for(str).content_type
_JSON_TYPE: Final = codec_for(Any).content_type


class Rejection(Struct, frozen=True):
    """The reply to a request that was dead-lettered."""

    reason: str


def answer_codec(codec: Codec[Any]) -> Codec[Any]:
    """Return the codec for the mailbox of a request client, which also decodes a `Rejection`."""

    def decode(data: bytes) -> Any:
        if data[: len(_REJECTED)] == _REJECTED:  # raises if the body is None, i.e. lost
            return Rejection(data.removeprefix(_REJECTED).decode(errors="replace"))
        return codec.decode(data)

    return replace(codec, decode=decode, quick_decode=decode)


def new_reply_queue(requests: str) -> str:
    """Return a unique name for a client's reply queue, which is a standard queue."""
    start = requests.removesuffix(".fifo")[:_NAME_CHARS]
    return f"{start}-replies-{secrets.token_hex(8)}"


def is_reply_queue(name: str) -> bool:
    """Return whether this is the name of a reply queue, which exists as long as its client."""
    return _REPLY_QUEUE.fullmatch(name) is not None


def dropped(name: str, in_reply_to: str) -> str:
    """Log a reply that was dropped because its client has closed, and return an empty id."""
    logger.warning(
        "reply dropped: its client has closed",
        mailbox=name,
        in_reply_to=in_reply_to,
    )
    return ""


def encoded(body: Any) -> tuple[bytes, bool]:
    """Return a reply as bytes, and whether they are plain text."""
    if isinstance(body, Rejection):
        return _REJECTED + body.reason.encode(errors="replace"), False
    codec: Codec[Any] = codec_for(type(body))
    try:
        data = codec.encode(body)
    except SerializationError:
        inner = _inner_type(body)
        if inner is None:
            raise
        data = codec_for(inner).encode(body)
    return data, codec.content_type == _TEXT_TYPE


def answer(in_reply_to: str, body: Any) -> tuple[bytes, dict[str, str]]:
    """Return the body and the attributes of a reply."""
    data, is_text = encoded(body)
    attributes = {IN_REPLY_TO: in_reply_to}
    if is_text:
        attributes[FORM] = TEXT
    return data, attributes


def reads_json(codec: Codec[Any]) -> bool:
    """Return whether this codec decodes JSON, so that plain text must be quoted."""
    return codec.content_type == _JSON_TYPE


def quoted(body: bytes, attributes: Mapping[str, str] | None) -> bytes:
    """Return the body as JSON: a text reply becomes a JSON string."""
    if not attributes or attributes.get(FORM) != TEXT:
        return body
    try:
        return msgspec.json.encode(body.decode())
    except UnicodeDecodeError:
        return body  # mislabelled: decoding will report it


def _inner_type(body: Any) -> Any:
    """Return the typed form of a list or dict whose values share one class, else None."""
    values = body if type(body) is list else body.values() if type(body) is dict else ()
    kinds = set(map(type, values))
    if len(kinds) != 1 or (kind := kinds.pop()).__module__ == "builtins":
        return None
    if type(body) is list:
        return list[kind]  # type: ignore[valid-type]
    return dict[str, kind] if set(map(type, body)) == {str} else None  # type: ignore[valid-type]
