"""Draws line charts as self-contained SVG."""

from __future__ import annotations

import datetime
import math
from collections.abc import Mapping, Sequence
from html import escape

_WIDTH, _HEIGHT = 860, 220
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 12, 26, 30
_HOUR = 3600
COLOURS = ("#2563eb", "#059669", "#d97706", "#dc2626", "#7c3aed")
Points = Sequence[tuple[datetime.datetime, float | None]]


def line_chart(title: str, unit: str, lines: Mapping[str, Points]) -> str:
    """Return a chart of several lines over time; None leaves a gap."""
    times = sorted({at for points in lines.values() for at, _ in points})
    values = [value for points in lines.values() for _, value in points if value is not None]
    if not times or not values:
        return f'<figure><figcaption>{escape(title)}</figcaption><p class="none">none</p></figure>'
    top = _nice(max(values))
    first, last = times[0].timestamp(), times[-1].timestamp()
    span = max(last - first, 1.0)

    def x(at: datetime.datetime) -> float:
        return _LEFT + (at.timestamp() - first) / span * (_WIDTH - _LEFT - _RIGHT)

    def y(value: float) -> float:
        return _HEIGHT - _BOTTOM - value / top * (_HEIGHT - _TOP - _BOTTOM)

    parts = [f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{escape(title)}">']
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        level = y(top * share)
        label = f"{top * share:,.0f}" if top >= 100 else f"{top * share:.4g}"
        parts.append(f'<path class="grid" d="M{_LEFT} {level:.1f} H{_WIDTH - _RIGHT}"/>')
        parts.append(f'<text x="{_LEFT - 6}" y="{level + 4:.1f}" class="y">{label}</text>')
    for at, anchor in ((times[0], "start"), (times[-1], "end")):
        label = f"{at:%Y-%m-%d %H:%M:%S}" if span < _HOUR else f"{at:%Y-%m-%d %H:%M}"
        position = f'x="{x(at):.1f}" y="{_HEIGHT - 8}" text-anchor="{anchor}"'
        parts.append(f"<text {position}>{label}</text>")
    for colour, (name, points) in zip(COLOURS, lines.items(), strict=False):
        parts += _line(name, colour, [(x(at), v if v is None else y(v)) for at, v in points])
    legend = " ".join(
        f'<span style="color:{colour}">&#9632; {escape(name)}</span>'
        for colour, name in zip(COLOURS, lines, strict=False)
    )
    caption = f"<figcaption>{escape(title)} <small>{escape(unit)}</small> {legend}</figcaption>"
    return f"<figure>{caption}{''.join(parts)}</svg></figure>"


def _line(name: str, colour: str, points: Sequence[tuple[float, float | None]]) -> list[str]:
    """Return a path for each run of points without a gap, and a dot for a single point."""
    runs: list[list[tuple[float, float]]] = [[]]
    for x, y in sorted(points, key=lambda point: point[0]):
        if y is None:
            runs.append([])
        else:
            runs[-1].append((x, y))
    drawn = []
    for run in filter(None, runs):
        if len(run) == 1:
            (x, y) = run[0]
            drawn.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>')
            continue
        path = " L".join(f"{x:.1f} {y:.1f}" for x, y in run)
        title = f"<title>{escape(name)}</title>"
        drawn.append(f'<path class="line" stroke="{colour}" d="M{path}">{title}</path>')
    return drawn


def _nice(value: float) -> float:
    """Round up to 1, 2 or 5 times a power of ten."""
    if value <= 0:
        return 1.0
    unit = 10.0 ** math.floor(math.log10(value))
    return next(unit * step for step in (1, 2, 5, 10) if value <= unit * step)
