"""Messages as the dashboard shows them: looked at, never received, one screenful at a time."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, NamedTuple, cast

from pillarbox.dashboard.render import body_views
from pillarbox.mailbox.message import DeadLetter, Message, Undecodable
from pillarbox.mailbox.protocol import Mailbox, State

PAGE = 25
OFFSET_MAX = 10_000
SEARCH_MAX = 5_000  # so many messages are looked through for one screenful
STATES: tuple[State, ...] = ("ready", "scheduled", "in_flight")
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


class Screenful(NamedTuple):
    """Some messages, and where the next ones begin."""

    messages: list[Shown]
    offset: int
    following: int | None
    searched: int | None


def browse(box: Mailbox[bytes], state: State, offset: int, search: str) -> Screenful:
    """The messages of one state from `offset` on, or those that contain `search`."""
    if search:
        found = box.peek(SEARCH_MAX, state=state)
        chosen = [m for m in found if contains(m, search)]
        window = chosen[offset : offset + PAGE]
        more = len(chosen) > offset + PAGE
        searched: int | None = len(found)
    else:
        found = box.peek(offset + PAGE + 1, state=state)
        window = list(found[offset : offset + PAGE])
        more = len(found) > offset + PAGE and offset + PAGE < OFFSET_MAX
        searched = None
    shown = [show(message, state) for message in window]
    return Screenful(shown, offset, offset + PAGE if more else None, searched)


def contains(message: Message[Any], text: str) -> bool:
    """Whether its id, its body or an attribute contains this."""
    if text in message.id or text.encode("utf-8", "surrogatepass") in bytes_of(message):
        return True
    return any(text in name or text in value for name, value in message.attributes.items())


def find(box: Mailbox[bytes], message_id: str) -> Shown | None:
    """One message, if it is among those that can be looked at."""
    for state in STATES:
        for message in box.peek(OFFSET_MAX, state=state):
            if message.id == message_id:
                return show(message, state)
    return None


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
