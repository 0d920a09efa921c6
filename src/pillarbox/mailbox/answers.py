"""The form of an answer, and the queues that clients have for their answers.

Whoever replies knows the mailbox for the answer by name only, not its type. So an answer is
encoded as what it is, and says so if it is text: a mailbox that reads JSON then takes it as a
`str`. Nothing is remembered about the queue: opening a mailbox on it changes no answer.
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
TEXT: Final = "text"  # the body is no JSON

#: A client may wait for an answer for twelve hours. Whatever it has left for a day is not wanted.
IDLE_SECONDS_MAX: Final = 86_400

#: How the answer to a rejected request begins; the reason follows. No codec writes such bytes.
_REJECTED: Final = b"\x00pillarbox.rejected\x00"

_REPLY_QUEUE: Final = re.compile(r"[\w.-]+-replies-[0-9a-f]{16}", re.ASCII)
_NAME_CHARS: Final = 40  # of the requests' name, in that of the answers' queue
_TEXT_TYPE: Final = codec_for(str).content_type
_JSON_TYPE: Final = codec_for(Any).content_type


class Rejection(Struct, frozen=True):
    """The answer to a request that was dead-lettered."""

    reason: str


def answer_codec(codec: Codec[Any]) -> Codec[Any]:
    """A codec for the mailbox of a request client, which also decodes a `Rejection`."""

    def decode(data: bytes) -> Any:
        if data[: len(_REJECTED)] == _REJECTED:  # it raises for a body that was lost
            return Rejection(data.removeprefix(_REJECTED).decode(errors="replace"))
        return codec.decode(data)

    return replace(codec, decode=decode, quick_decode=decode)


def new_reply_queue(requests: str) -> str:
    """A name for a client's own queue of answers."""
    return f"{requests[:_NAME_CHARS]}-replies-{secrets.token_hex(8)}"


def is_reply_queue(name: str) -> bool:
    """Whether a queue is a client's own: it ends with the client, and nobody else makes it."""
    return _REPLY_QUEUE.fullmatch(name) is not None


def dropped(name: str, in_reply_to: str) -> str:
    """An answer comes too late: its client has closed. Answers with the id of no message."""
    logger.warning("answer dropped: its client is gone", mailbox=name, in_reply_to=in_reply_to)
    return ""


def encoded(body: Any) -> tuple[bytes, bool]:
    """An answer as bytes, and whether these are text."""
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
    """The body and the attributes of an answer."""
    data, is_text = encoded(body)
    noted = {IN_REPLY_TO: in_reply_to}
    if is_text:
        noted[FORM] = TEXT
    return data, noted


def reads_json(codec: Codec[Any]) -> bool:
    """Whether a mailbox with this codec needs text in quotes."""
    return codec.content_type == _JSON_TYPE


def quoted(body: bytes, attributes: Mapping[str, str] | None) -> bytes:
    """A body for a reader of JSON."""
    if not attributes or attributes.get(FORM) != TEXT:
        return body
    try:
        return msgspec.json.encode(body.decode())
    except UnicodeDecodeError:
        return body  # it lied, and is reported as a body that does not decode


def _inner_type(body: Any) -> Any:
    """What a list or a dict holds, if that is one class which says how it is encoded."""
    values = body if type(body) is list else body.values() if type(body) is dict else ()
    kinds = set(map(type, values))
    if len(kinds) != 1 or (kind := kinds.pop()).__module__ == "builtins":
        return None
    if type(body) is list:
        return list[kind]  # type: ignore[valid-type]
    return dict[str, kind] if set(map(type, body)) == {str} else None  # type: ignore[valid-type]
