"""Renders the report as one self-contained HTML page."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from html import escape
from itertools import pairwise
from operator import itemgetter
from typing import Any

from pillarbox.pipeline.report.charts import line_chart
from pillarbox.pipeline.report.job import Report

_COUNTS = ("sent", "delivered", "acknowledged", "redelivered", "died")


def page(report: Report, made_at: datetime.datetime) -> str:
    """Return the report as an HTML page."""
    sections = [_queue(report, each) for each in report.queues]
    empty = "" if sections else '<p class="none">There is nothing in this history.</p>'
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>Pillarbox report: {escape(report.url)}</title>",
            f"<style>{_STYLE}</style></head><body>",
            f"<h1>{escape(report.url)}</h1>",
            f"<p>Made at {made_at:%Y-%m-%d %H:%M:%S}, in steps of {escape(report.every)}.",
            "Times are those of the log, in UTC.</p>",
            empty,
            *sections,
            "</body></html>",
        ]
    )


def _queue(report: Report, queue: dict[str, Any]) -> str:
    name = queue["queue"]
    minutes = [each for each in report.minutes if each["queue"] == name]
    waits = {"p50": "waited_ms_p50", "p90": "waited_ms_p90", "p99": "waited_ms_p99"}
    works = {"p50": "worked_ms_p50", "p90": "worked_ms_p90", "p99": "worked_ms_p99"}
    counts = {each: each for each in _COUNTS}
    step = _step(report)
    return "\n".join(
        [
            f"<section><h2>{escape(str(name))}</h2>",
            _summary(queue),
            line_chart(
                "Throughput", f"messages per {report.every}", lines_of(minutes, counts, step, 0)
            ),
            line_chart(
                "Time in the queue", "ms, until first delivery", lines_of(minutes, waits, step)
            ),
            line_chart("Processing time", "ms, until acknowledged", lines_of(minutes, works, step)),
            _reasons([each for each in report.reasons if each["queue"] == name]),
            "</section>",
        ]
    )


def _step(report: Report) -> datetime.timedelta:
    """Return the interval between two neighbouring points of the charts."""
    times = sorted({each["minute"] for each in report.minutes})
    gaps = [after - before for before, after in pairwise(times)]
    return min(gaps, default=datetime.timedelta())


def lines_of(
    minutes: Sequence[dict[str, Any]],
    wanted: dict[str, str],
    step: datetime.timedelta,
    nothing: float | None = None,
) -> dict[str, list[tuple[datetime.datetime, float | None]]]:
    """Return a line for each column; intervals without rows get the value `nothing`."""
    times = [each["minute"] for each in minutes]
    quiet = [
        (at, nothing)
        for before, after in pairwise(times)
        if after - before > step
        for at in (before + step, after - step)
    ]
    return {
        name: sorted(
            [*((each["minute"], each[column]) for each in minutes), *quiet], key=itemgetter(0)
        )
        for name, column in wanted.items()
    }


def _summary(queue: dict[str, Any]) -> str:
    rows = [(each, f"{queue[each]:,}") for each in _COUNTS]
    for title, column in (("time in the queue", "waited_ms"), ("processing time", "worked_ms")):
        figures = [(each, queue[f"{column}_{each}"]) for each in ("p50", "p90", "p99", "max")]
        text = ", ".join(f"{label} {_time(value)}" for label, value in figures)
        rows.append((title, text))
    cells = "".join(f"<tr><th>{escape(k)}</th><td>{escape(v)}</td></tr>" for k, v in rows)
    return f"<table>{cells}</table>"


def _reasons(reasons: Sequence[dict[str, Any]]) -> str:
    if not reasons:
        return ""
    cells = "".join(
        f"<tr><td>{escape(str(each['reason']))}</td><td>{each['messages']:,}</td></tr>"
        for each in reasons
    )
    return f"<h3>Dead letters by reason</h3><table>{cells}</table>"


def _time(milliseconds: float | None) -> str:
    """Format a duration in ms, s or min."""
    if milliseconds is None:
        return "-"
    if milliseconds < 1000:
        return f"{milliseconds:.3g} ms"
    seconds = milliseconds / 1000
    return f"{seconds:.3g} s" if seconds < 120 else f"{seconds / 60:.3g} min"


_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 900px; padding: 0 1rem;
  color: #111827; background: #fff }
h1 { font-size: 1.4rem } h2 { border-bottom: 1px solid #e5e7eb; margin-top: 2.5rem }
table { border-collapse: collapse } th { text-align: left; font-weight: 600 }
th, td { padding: .15rem 1.2rem .15rem 0; vertical-align: top }
figure { margin: 1.2rem 0 } figcaption { font-weight: 600 } figcaption span { font-weight: 400;
  margin-left: .6rem } small { color: #6b7280; font-weight: 400 }
svg { width: 100%; height: auto; font-size: 12px } svg text { fill: #374151 }
.y { text-anchor: end } .grid { stroke: #e5e7eb } .line { fill: none; stroke-width: 1.8 }
.none { color: #6b7280 }
"""
