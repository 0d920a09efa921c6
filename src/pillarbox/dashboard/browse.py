"""Messages as the dashboard shows them: looked at, never received, one screenful at a time."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, NamedTuple, cast

from pillarbox.dashboard.boxes import Boxes
from pillarbox.dashboard.render import BODY_CHARS_MAX, body_views
from pillarbox.mailbox.message import DeadLetter, Message, Undecodable
from pillarbox.mailbox.protocol import State

PAGE = 25
SEARCH_MAX = 1_000  # so many messages are looked through for one screenful
_EXCERPT = 120


class Shown(NamedTuple):
    """One message on a page."""

    id: str
    excerpt: str
    size: int
    delivery_count: int
    enqueued_at: datetime
    priority: int
    group: str | None
    attributes: Mapping[str, str]
    dead_letter: DeadLetter | None
    state: str
    body: bytes

    @property
    def views(self) -> dict[str, str]:
        return body_views(self.body)

    @property
    def whole_text(self) -> str | None:
        """The body, if a form brings it back as it is: text without \\r, and not too much."""
        text = self.views.get("text") if self.size <= BODY_CHARS_MAX else None
        return None if text is None or "\r" in text else text


class Screenful(NamedTuple):
    """Some messages, from a place in line on, and the place where the next ones begin."""

    messages: list[Shown]
    offset: int
    following: int | None
    searched: int | None  # how many were looked through, if something was searched for

    @property
    def before(self) -> int:
        """Where the screenful before this one begins, unless something was searched for."""
        return max(0, self.offset - PAGE)


def browse(boxes: Boxes, name: str, state: State, offset: int, search: str) -> Screenful:
    """The messages of one state from `offset` on, or the first of them that contain `search`."""
    if search:
        return _search(boxes, name, state, offset, search)
    found = boxes.look(name, state, PAGE + 1, offset)
    more = offset + PAGE if len(found) > PAGE else None
    return Screenful([show(m, state) for m in found[:PAGE]], offset, more, None)


def _search(boxes: Boxes, name: str, state: State, offset: int, search: str) -> Screenful:
    """Stops at a screenful, or when it has looked through enough: the next page goes on there."""
    shown: list[Shown] = []
    at, end = offset, offset + SEARCH_MAX
    while at < end:
        chunk = boxes.look(name, state, SEARCH_MAX, at)
        for message in chunk:
            at += 1
            if contains(message, search):
                shown.append(show(message, state))
                if len(shown) == PAGE:
                    return Screenful(shown, offset, at, at - offset)
        if len(chunk) < SEARCH_MAX:
            return Screenful(shown, offset, None, at - offset)
    return Screenful(shown, offset, at, at - offset)


def contains(message: Message[Any], text: str) -> bool:
    """Whether its id, its body or an attribute contains this."""
    if text in message.id or text.encode("utf-8", "surrogatepass") in bytes_of(message):
        return True
    return any(text in name or text in value for name, value in message.attributes.items())


def bytes_of(message: Message[Any]) -> bytes:
    body = message.body
    return body.data if isinstance(body, Undecodable) else cast("bytes", body)


def show(message: Message[Any], state: str) -> Shown:
    data = bytes_of(message)
    text = data[: _EXCERPT * 4].decode("utf-8", "replace")
    return Shown(
        message.id,
        text[:_EXCERPT] + ("…" if len(text) > _EXCERPT else ""),
        len(data),
        message.delivery_count,
        message.enqueued_at,
        message.priority,
        message.group,
        dict(message.attributes),
        message.dead_letter,
        state,
        data,
    )
