"""What a person may do to a queue from the dashboard. Each answers with what it did."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import msgspec

from pillarbox.core.errors import InvalidParameterError
from pillarbox.dashboard.browse import SEARCH_MAX, contains
from pillarbox.mailbox.protocol import Mailbox

Form = Mapping[str, str]


class Done(NamedTuple):
    """What happened, in words; `dry` if nothing did, `rest` if it goes on, a step a second."""

    text: str
    dry: bool = False
    rest: Iterator[int] | None = None


def send(box: Mailbox[bytes], form: Form) -> Done:
    attributes = _attributes(form.get("attributes", ""))
    message_id = box.send(
        form.get("body", "").replace("\r\n", "\n").encode(),
        priority=_whole(form, "priority"),
        delay_seconds=_whole(form, "delay_seconds"),
        attributes=attributes or None,
        group=form.get("group") or None,
    )
    return Done(f"Sent message {message_id}.")


def delete(box: Mailbox[bytes], form: Form) -> Done:
    return Done(f"Deleted {box.delete(_ids(form)):,} messages.")


def purge(box: Mailbox[bytes], form: Form) -> Done:
    if form.get("name") != box.name:
        raise InvalidParameterError("name", form.get("name"), f"{box.name!r}, typed to confirm")
    return Done(f"Purged {box.purge():,} messages.")


def redrive(box: Mailbox[bytes], form: Form) -> Done:
    """Dead letters go back: those selected, those that contain a text, or all."""
    ids = _ids(form)
    search = form.get("search", "")
    if search:
        found = box.peek(SEARCH_MAX)
        ids = [message.id for message in found if contains(message, search)]
    most = _whole(form, "at_most")
    if most:
        ids = (ids or [message.id for message in box.peek(most)])[:most]
    everything = not search and not most and form.get("which") != "selected"
    if form.get("dry_run"):
        count = box.stats().ready if everything else len(ids)
        return Done(f"{count:,} messages would go back; nothing has happened.", dry=True)
    per_second = _whole(form, "per_second")
    if per_second:
        return Done(
            f"Redriving, {per_second:,} messages a second.",
            rest=_slowly(box, None if everything else ids, per_second),
        )
    moved = box.redrive() if everything else box.redrive(ids)
    return Done(f"Redrove {moved:,} messages.")


def _slowly(box: Mailbox[bytes], ids: list[str] | None, per_second: int) -> Iterator[int]:
    """Redrive so many, again and again, until none are left."""
    while True:
        chosen = [m.id for m in box.peek(per_second)] if ids is None else ids[:per_second]
        if not chosen:
            return
        moved = box.redrive(chosen)
        if ids is None and not moved:  # those left have nowhere to go back to
            return
        yield moved
        ids = None if ids is None else ids[per_second:]


VERBS: dict[str, Callable[[Mailbox[bytes], Form], Done]] = {
    "send": send,
    "delete": delete,
    "purge": purge,
    "redrive": redrive,
}


def _ids(form: Form) -> list[str]:
    return form.get("id", "").split()


def _whole(form: Form, name: str) -> int:
    text = form.get(name, "").strip() or "0"
    if not text.isdecimal() or not text.isascii() or len(text) > 9:
        raise InvalidParameterError(name, text, "a whole number")
    return int(text)


def _attributes(text: str) -> dict[str, str]:
    if not text.strip():
        return {}
    try:
        return msgspec.json.decode(text, type=dict[str, str])
    except msgspec.DecodeError as error:
        raise InvalidParameterError(
            "attributes", text, f'a JSON object of texts, as {{"colour": "red"}} ({error})'
        ) from error
