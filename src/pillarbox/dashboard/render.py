"""Renders templates, with a content security policy that allows only the dashboard's own files.

Jinja escapes everything that comes from messages.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from datetime import datetime
from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from pillarbox.broker.http import NOT_FOR_OTHER_SITES, Response
from pillarbox.dashboard.workers import name_of
from pillarbox.mutex import paced
from pillarbox.pipeline.status import per_second

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    **NOT_FOR_OTHER_SITES,
}
_TYPES = {
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
_ASSETS = (
    *("app.js", "app.css", "icon.svg", "vendor/htmx.min.js", "vendor/htmx-sse.min.js"),
    *("vendor/uplot.min.js", "vendor/uplot.min.css"),
)
NOTHING = "\u2013"  # an en dash where there is no number
BODY_CHARS_MAX = 20_000
_PACE = 64


def page(template: str, status: int = 200, **values: Any) -> Response:
    """Render a template as a response."""
    text = fragment(template, **values)
    return Response(status, text.encode("utf-8", "replace"), headers("text/html; charset=utf-8"))


def headers(kind: str) -> dict[str, str]:
    """Return the headers of a response with this content type."""
    return {**HEADERS, "Content-Type": kind, "Cache-Control": "no-store"}


def fragment(template: str, **values: Any) -> str:
    """Render a template as text, in parts, to release the interpreter to the event loop."""
    parts = _templates().get_template(template).generate(**values)
    return "".join(paced(parts, _PACE))


def redirect(to: str) -> Response:
    return Response(303, b"", {**HEADERS, "Location": to, "HX-Redirect": to})


def picture(svg: str) -> Response:
    """Return an SVG image as a response, with a policy that allows only inline styles."""
    policy = {"Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'"}
    return Response(200, svg.encode("utf-8", "replace"), headers(_TYPES["svg"]) | policy)


def asset(path: str) -> Response | None:
    """Return a file of static/ as a compressed response; None for any other path."""
    return _asset(path) if path in _ASSETS else None


@cache  # so it must never see a path that a client made up
def _asset(path: str) -> Response:
    data = (files(__package__) / "static" / path).read_bytes()
    compressed = {"Content-Encoding": "gzip", "Cache-Control": "max-age=3600"}
    kind = headers(_TYPES[path.rpartition(".")[2]])
    return Response(200, gzip.compress(data, mtime=0), kind | compressed)


@cache
def _templates() -> Environment:
    env = Environment(
        loader=PackageLoader(__package__ or "pillarbox.dashboard"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    env.filters.update(age=age, count=count, rate=rate, spark=spark, text=_text)
    env.filters.update(before=before, moment=moment, second=second, dead_letters=_dead_letters)
    env.filters["worker"] = lambda holder: "unknown" if holder is None else name_of(holder.client)
    return env


def count(value: float | None) -> str:
    return NOTHING if value is None else f"{value:,.0f}"


def rate(value: float | None) -> str:
    return NOTHING if value is None else per_second(value)


def age(seconds: float | None) -> str:
    """Format an age."""
    if seconds is None:
        return NOTHING
    if seconds < 1:
        return f"{seconds * 1_000:.0f} ms"
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= size * 2:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


def before(seconds: float) -> str:
    """Format how long ago an interval of a chart was, as on its axis."""
    for unit, size in (("h", 3_600), ("min", 60)):
        if seconds and seconds % size == 0:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s" if seconds else "now"


def moment(time: datetime | None) -> Markup:
    milliseconds = time.microsecond // 1_000 if time is not None else 0
    return _stamp(time, f"%H:%M:%S.{milliseconds:03} UTC")


def second(time: datetime | None) -> Markup:
    return _stamp(time, "%H:%M:%S")


def _stamp(time: datetime | None, form: str) -> Markup:
    """Format a date and a time, with a line break allowed only between them."""
    if time is None:
        return Markup("")
    parts = f'<span class="time">%Y-%m-%d</span> <span class="time">{form}</span>'
    return Markup(time.strftime(parts))  # noqa: S704 - numbers only


def _dead_letters(number: int) -> str:
    return f"{number:,} dead letter{'' if number == 1 else 's'}"


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def spark(values: Sequence[int], label: str, width: int = 96, height: int = 22) -> Markup:
    """Draw a sparkline. `label` must be trusted text."""
    if len(values) < 2:
        return Markup('<svg class="spark" viewBox="0 0 96 22" aria-hidden="true"></svg>')
    top = max(*values, 1)
    step = width / (len(values) - 1)
    points = " ".join(
        f"{i * step:.1f},{height - 1 - (height - 3) * value / top:.1f}"
        for i, value in enumerate(values)
    )
    return Markup(  # noqa: S704 - numbers only
        f'<svg class="spark" viewBox="0 0 {width} {height}" role="img" '
        f'aria-label="{label}, at most {top:,}"><polyline points="{points}"/></svg>'
    )


def body_views(data: bytes) -> dict[str, str]:
    """Format a body as JSON and text, where possible, and in hexadecimal."""
    views = {}
    shown = data[:BODY_CHARS_MAX]
    try:
        text = data.decode()
        try:
            value = json.loads(text)
            views["JSON"] = json.dumps(value, indent=2, ensure_ascii=False)[:BODY_CHARS_MAX]
        except (ValueError, RecursionError):
            pass
        views["text"] = text[:BODY_CHARS_MAX]
    except UnicodeDecodeError:
        pass
    lines = [shown[i : i + 16] for i in range(0, min(len(shown), 4_096), 16)]
    views["hex"] = "\n".join(
        f"{i * 16:06x}  {line.hex(' '):<47}  "
        + "".join(chr(b) if 32 <= b < 127 else "." for b in line)
        for i, line in enumerate(lines)
    )
    return views
