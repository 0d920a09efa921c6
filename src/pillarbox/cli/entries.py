"""Formats the entries of a log as text and as JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import msgspec
from rich.text import Text

from pillarbox.cli.output import iso
from pillarbox.core import journal
from pillarbox.core.queue import DEFAULT_SETTINGS
from pillarbox.mailbox.message_ids import Names

_STORE_KINDS = frozenset((journal.IDENTITY, journal.RESTATED))
_WITH_BODY = frozenset((journal.SENT, journal.SCHEDULED, journal.RESTATED))
_STYLES = {
    "sent": "green",
    "scheduled": "green",
    "leased": "cyan",
    "acknowledged": "blue",
    "returned": "yellow",
    "died": "red",
    "died_in_line": "red",
    "removed": "magenta",
    "purged": "magenta",
}
_WIDTH_FOR_ONE_LINE = 110
_DEFAULTS: dict[str, Any] = msgspec.to_builtins(DEFAULT_SETTINGS)
_FIRST = ("index", "time", "kind", "queue", "id", "body", "body_format")


def body_fields(body: bytes) -> dict[str, Any]:
    """Return a body as JSON (an object or an array), else as printable text, else in hex."""
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return {"body": body.hex(), "body_format": "hex"}
    if text[:1] in ("{", "["):
        try:
            value = json.loads(text, parse_float=_finite, parse_constant=_finite)
            return {"body": value, "body_format": "json"}
        except (ValueError, RecursionError):
            pass
    if all(char.isprintable() or char in "\n\r\t" for char in text):
        return {"body": text, "body_format": "text"}
    return {"body": body.hex(), "body_format": "hex"}


def _finite(text: str) -> float:
    """Parse a float; raise ValueError if it is infinite or NaN, which JSON lacks."""
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(text)
    return number


def describe(index: int, time_ns: int, entry: journal.Entry, names: Names) -> dict[str, Any]:
    """Return an entry of a store as a JSON object."""
    fields: dict[str, Any] = {
        "index": index,
        "time": iso(time_ns),
        "kind": journal.KINDS.get(entry.kind, f"kind {entry.kind}"),
    }
    if entry.kind not in _STORE_KINDS:
        fields["queue"] = names.queue(entry.queue)
    if entry.key:  # 0 in entries about no message, or about several
        fields["id"] = names.message_id(entry.key)
    if entry.kind in _DETAILS:
        fields |= _DETAILS[entry.kind](entry, names)
    if entry.kind in _WITH_BODY:
        fields |= body_fields(entry.body)
    return fields


def describe_raw(index: int, time_ns: int, data: bytes) -> dict[str, Any]:
    """Return a record of a plain log as a JSON object."""
    return {"index": index, "time": iso(time_ns), "bytes": len(data)} | body_fields(data)


def _new(entry: journal.Entry, _: Names) -> dict[str, Any]:
    attributes, group, deduplication = entry.details or (None, None, None)
    fields = {"attributes": attributes, "group": group, "deduplication_id": deduplication}
    set_fields = {"priority": entry.priority} | {k: v for k, v in fields.items() if v is not None}
    return set_fields | ({"due": iso(entry.at)} if entry.kind == journal.SCHEDULED else {})


def _leased(entry: journal.Entry, _: Names) -> dict[str, Any]:
    timeout, number = entry.details
    return {"delivery": number, "until": iso(entry.at + timeout)}


def _returned(entry: journal.Entry, _: Names) -> dict[str, Any]:
    outcome, due = entry.details
    return {"outcome": outcome} | ({"due": iso(due)} if due else {})


def _redriven(entry: journal.Entry, names: Names) -> dict[str, Any]:
    target, keys = entry.details
    return {"target": target, "ids": [names.message_id(key) for key in keys]}


def _declared(entry: journal.Entry, _: Names) -> dict[str, Any]:
    _name, settings, dead = entry.details
    return {"settings": settings, "dead_letters": dead}


_DETAILS: dict[int, Callable[[journal.Entry, Names], dict[str, Any]]] = {
    journal.SENT: _new,
    journal.SCHEDULED: _new,
    journal.RESCHEDULED: lambda x, _: {"due": iso(x.at)},
    journal.LEASED: _leased,
    journal.RETURNED: _returned,
    journal.RELEASED: lambda x, _: {"to_front": bool(x.number)},
    journal.EXTENDED: lambda x, _: {"until": iso(x.at)},
    journal.DIED: lambda x, _: {"outcome": x.details[0], "reason": x.details[1]},
    journal.DIED_IN_LINE: lambda x, _: {"reason": x.details},
    journal.REDRIVEN: _redriven,
    journal.REMOVED: lambda x, names: {"ids": [names.message_id(key) for key in x.details]},
    # Not the second detail: it is the secret that signs receipt handles.
    journal.IDENTITY: lambda x, _: {"prefix": x.details[0]},
    journal.DECLARED: _declared,
    journal.NOTED: lambda x, _: {"notes": x.details},
}


def line(fields: dict[str, Any], width: int | None) -> Text:
    """Format an entry as text. `width` is that of the terminal; None means never truncate.

    On a narrow terminal, the body is on a separate line.
    """
    kind, when = fields.get("kind", ""), fields["time"]
    text = Text(f"{fields['index']:>6}", style="bold")
    text.append(f"  {when if width is None else when[11:-1]}", style="not bold dim")
    if kind:
        text.append(f" {kind:<12}", style=f"not bold {_STYLES.get(kind, '')}")
        text.append(f" {safe(fields.get('queue', '-')):<8}", style="not bold")
    if "id" in fields:
        text.append(f" {fields['id']}", style="not bold dim")
    rest = Text()
    for part in _details(fields):
        rest.append(f"  {safe(part)}", style="not bold yellow")
    if "body" in fields:
        rest.append(f"  {safe(body_text(fields))}", style="not bold default")
    if rest and "id" in fields and width is not None and width < _WIDTH_FOR_ONE_LINE:
        text.append("\n" + " " * 6)
    return text.append(rest)


def _details(fields: dict[str, Any]) -> list[str]:
    parts: list[str] = []
    for name, value in fields.items():
        if name in _FIRST or value is None or (name == "priority" and value == 0):
            continue
        if name == "attributes":
            parts.extend(f"{key}={text}" for key, text in value.items())
        elif name == "settings":
            changed = {k: v for k, v in value.items() if v != _DEFAULTS.get(k)}
            parts.extend(f"{key}={text}" for key, text in changed.items())
        elif name == "ids":
            parts.append(" ".join(value))
        elif name == "bytes":
            parts.append(f"{value} bytes")
        else:
            parts.append(f"{name.replace('_', ' ')} {value}")
    return parts


def body_text(fields: dict[str, Any]) -> str:
    """Return the body of `body_fields` as text."""
    body = fields["body"]
    if fields["body_format"] == "json":
        return json.dumps(body, ensure_ascii=False)
    return f"0x{body}" if fields["body_format"] == "hex" else str(body)


def safe(text: str) -> str:
    """Escape characters that could break the line or control the terminal."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
