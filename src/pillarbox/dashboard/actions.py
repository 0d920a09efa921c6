"""The actions of the dashboard on a queue. Each returns a description of what it did."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import NamedTuple

import msgspec

from pillarbox.core.errors import InvalidParameterError, MailboxError
from pillarbox.dashboard.admin import QueueAdmin, QueueSettings
from pillarbox.dashboard.browse import SEARCH_MAX, contains
from pillarbox.dashboard.mailboxes import Mailboxes
from pillarbox.mailbox.protocol import Mailbox

Form = Mapping[str, str]
_STEP = 500  # messages redriven at once, so that other requests don't wait long
_FOREGROUND_STEPS = 20  # a longer redrive continues in the background


class Done(NamedTuple):
    """The result of an action; `dry` if it was a dry run, `rest` if more steps follow."""

    text: str
    dry: bool = False
    rest: Iterator[int] | None = None
    paced: bool = False  # one step per second
    gone: bool = False  # the queue was deleted


def send(_: Mailboxes, box: Mailbox[bytes], form: Form) -> Done:
    attributes = _attributes(form.get("attributes", ""))
    message_id = box.send(
        form.get("body", "").replace("\r\n", "\n").encode(),
        priority=_whole(form, "priority"),
        delay_seconds=_whole(form, "delay_seconds"),
        attributes=attributes or None,
        group=form.get("group") or None,
    )
    return Done(f"Sent message {message_id}.")


def delete(_: Mailboxes, box: Mailbox[bytes], form: Form) -> Done:
    return Done(f"Deleted {_messages(box.delete(_ids(form)))}.")


def purge(_: Mailboxes, box: Mailbox[bytes], form: Form) -> Done:
    _check_typed_name(box, form)
    return Done(f"Purged {_messages(box.purge())}.")


def create(boxes: Mailboxes, form: Form) -> Done:
    name = form.get("name", "").strip()
    _admin(boxes).create(name)
    return Done(f"Created queue {name}.")


def change(boxes: Mailboxes, box: Mailbox[bytes], form: Form) -> Done:
    wanted = QueueSettings(*(form.get(field, "").strip() for field in QueueSettings._fields))
    _admin(boxes).change(box.name, wanted)
    return Done("Saved the settings.")


def pause(boxes: Mailboxes, box: Mailbox[bytes], _: Form) -> Done:
    _admin(boxes).pause(box.name, paused=True)
    return Done("Paused: the queue accepts messages but delivers none.")


def resume(boxes: Mailboxes, box: Mailbox[bytes], _: Form) -> Done:
    _admin(boxes).pause(box.name, paused=False)
    return Done("Resumed.")


def drop(boxes: Mailboxes, box: Mailbox[bytes], form: Form) -> Done:
    _check_typed_name(box, form)
    _admin(boxes).delete(box.name)
    return Done(f"Deleted queue {box.name}.", gone=True)


def _admin(boxes: Mailboxes) -> QueueAdmin:
    if boxes.admin is None:
        raise MailboxError("queues can't be created or changed here; use 'pillarbox queue'")
    return boxes.admin


def _check_typed_name(box: Mailbox[bytes], form: Form) -> None:
    if form.get("name") != box.name:
        raise InvalidParameterError("name", form.get("name"), f"{box.name!r}, typed to confirm")


def redrive(boxes: Mailboxes, box: Mailbox[bytes], form: Form) -> Done:
    """Redrive dead letters: selected ones, those that contain a text, the first few, or all."""
    selected = _ids(form) if form.get("which") == "selected" else None
    search, at_most = form.get("search", ""), _whole(form, "at_most")
    per_second = _whole(form, "per_second")
    everything = selected is None and not search and not at_most
    if form.get("dry_run"):
        return _dry_run(boxes, box, search, at_most)
    if everything and not per_second and box.stats().ready <= _STEP:
        return Done(f"Redrove {_messages(box.redrive())}.")
    if selected is not None:
        return Done(f"Redrove {_messages(box.redrive(selected) if selected else 0)}.")
    steps = _steps(boxes, box, search, at_most, per_second)
    if per_second:
        return Done(f"Redriving {per_second:,} messages per second.", rest=steps, paced=True)
    moved = sum(islice(steps, _FOREGROUND_STEPS))
    step = next(steps, None)
    if step is None:
        return Done(f"Redrove {_messages(moved)}.")
    return Done(f"Redrove {_messages(moved + step)}; more follow in the background.", rest=steps)


def _dry_run(boxes: Mailboxes, box: Mailbox[bytes], search: str, at_most: int) -> Done:
    ready = box.stats().ready
    if search:
        searched = boxes.peek(box.name, "ready", SEARCH_MAX, 0)
        count = sum(contains(message, search) for message in searched)
        among = f" (among the first {len(searched):,})" if ready > len(searched) else ""
    else:
        count, among = ready, ""
    count = min(count, at_most) if at_most else count
    return Done(f"{_messages(count)}{among} would be redriven; nothing was changed.", dry=True)


def _steps(
    boxes: Mailboxes, box: Mailbox[bytes], search: str, at_most: int, per_second: int
) -> Iterator[int]:
    """Redrive the queue in steps; yield the number of messages of each step."""
    left, skip = at_most or box.stats().ready, 0
    while left > 0:
        most = min(left, per_second or _STEP)
        messages = boxes.peek(box.name, "ready", SEARCH_MAX if search else most, skip)
        ids: list[str] = []
        examined = 0
        for message in messages:
            if len(ids) == most:
                break
            examined += 1
            if not search or contains(message, search):
                ids.append(message.id)
        if not examined:
            return
        moved = box.redrive(ids) if ids else 0
        skip += examined - moved  # skip messages without a source queue, or that do not match
        left -= moved
        yield moved


def _messages(count: int) -> str:
    return f"{count:,} message{'' if count == 1 else 's'}"


VERBS: dict[str, Callable[[Mailboxes, Mailbox[bytes], Form], Done]] = {
    each.__name__: each for each in (send, delete, purge, redrive, change, pause, resume, drop)
}
PIPELINE_VERBS = ("redrive",)


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
            "attributes", text, f'a JSON object of strings, such as {{"colour": "red"}} ({error})'
        ) from error
