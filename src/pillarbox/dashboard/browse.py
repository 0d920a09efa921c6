"""Pages of messages, which are peeked at but never received."""

from __future__ import annotations

from typing import Any, NamedTuple, cast

from pillarbox.dashboard.mailboxes import Mailboxes, Until
from pillarbox.dashboard.render import BODY_CHARS_MAX, body_views
from pillarbox.mailbox.message import Message, Undecodable
from pillarbox.mailbox.protocol import State

PAGE_SIZE = 25
SEARCH_MAX = 1_000  # messages searched for one page
_EXCERPT = 120


class MessageView(NamedTuple):
    """One message on a page."""

    message: Message[Any]
    state: State
    until: Until | None = None  # when it is due, or its lease ends

    @property
    def body(self) -> bytes:
        return body_bytes(self.message)

    @property
    def size(self) -> int:
        return len(self.body)

    @property
    def excerpt(self) -> str:
        text = self.body[: _EXCERPT * 4].decode("utf-8", "replace")
        return text[:_EXCERPT] + ("…" if len(text) > _EXCERPT else "")

    @property
    def views(self) -> dict[str, str]:
        return body_views(self.body)

    @property
    def whole_text(self) -> str | None:
        """The body, if an HTML form preserves it: short text without \\r."""
        text = self.views.get("text") if self.size <= BODY_CHARS_MAX else None
        return None if text is None or "\r" in text else text


class Page(NamedTuple):
    """Messages from `offset` on, and the offset of the next page."""

    messages: list[MessageView]
    offset: int
    following: int | None
    searched: int | None  # number of messages searched, if there was a search

    @property
    def before(self) -> int:
        """The offset of the previous page, if there was no search."""
        return max(0, self.offset - PAGE_SIZE)


def browse(boxes: Mailboxes, name: str, state: State, offset: int, search: str) -> Page:
    """Return a page of messages in one state from `offset` on, filtered by `search`."""
    if search:
        return _search(boxes, name, state, offset, search)
    messages = boxes.peek(name, state, PAGE_SIZE + 1, offset)
    more = offset + PAGE_SIZE if len(messages) > PAGE_SIZE else None
    times = boxes.times(name, state, PAGE_SIZE, offset)
    shown = [MessageView(m, state, times.get(m.id)) for m in messages[:PAGE_SIZE]]
    return Page(shown, offset, more, None)


def _search(boxes: Mailboxes, name: str, state: State, offset: int, search: str) -> Page:
    """Search until a page is full or the limit is reached; the next page continues from there."""
    shown: list[MessageView] = []
    at, end = offset, offset + SEARCH_MAX
    times = boxes.times(name, state, SEARCH_MAX, offset)
    while at < end:
        chunk = boxes.peek(name, state, SEARCH_MAX, at)
        for message in chunk:
            at += 1
            if contains(message, search):
                shown.append(MessageView(message, state, times.get(message.id)))
                if len(shown) == PAGE_SIZE:
                    return Page(shown, offset, at, at - offset)
        if len(chunk) < SEARCH_MAX:
            return Page(shown, offset, None, at - offset)
    return Page(shown, offset, at, at - offset)


def contains(message: Message[Any], text: str) -> bool:
    """Return whether the id, the body or an attribute contains the text."""
    if text in message.id or text.encode("utf-8", "surrogatepass") in body_bytes(message):
        return True
    return any(text in name or text in value for name, value in message.attributes.items())


def body_bytes(message: Message[Any]) -> bytes:
    body = message.body
    return body.data if isinstance(body, Undecodable) else cast("bytes", body)
