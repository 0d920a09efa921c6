"""HTML tables for notebooks, with everything escaped."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import Any

BODY_CHARS_MAX = 2_000


def table(title: str, rows: Iterable[tuple[str, Any]]) -> str:
    """Return a table of names and values."""
    cells = "".join(
        f'<tr><th style="text-align:left">{escape(name)}</th>'
        f'<td style="text-align:left">{_cell(value)}</td></tr>'
        for name, value in rows
    )
    return f"<table><caption>{escape(title)}</caption>{cells}</table>"


def _cell(value: Any) -> str:
    text = f"{value:,}" if type(value) is int else str(value)
    shown = text if len(text) <= BODY_CHARS_MAX else text[:BODY_CHARS_MAX] + "…"
    return escape(shown)


def of_mailbox(self: Any) -> str:
    """`_repr_html_` of every mailbox."""
    stats = self.stats()
    return table(f"{type(self).__name__} {self.name}", figures(stats))


def figures(stats: Any) -> list[tuple[str, Any]]:
    age = stats.oldest_age_seconds
    return [
        ("ready", stats.ready),
        ("scheduled", stats.scheduled),
        ("in flight", stats.in_flight),
        ("dead", stats.dead),
        ("oldest", "none" if age is None else f"{age:.1f} s"),
    ]


def of_log(self: Any) -> str:
    """`_repr_html_` of a log."""
    rows = [
        ("first index", self.first_index),
        ("end index", self.end_index),
        ("records", self.end_index - self.first_index),
    ]
    return table(f"{type(self).__name__} {self.path}", rows)
