"""Results for people (a table for each benchmark) and for programs (JSON)."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Iterable
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

import pillarbox
from bench.harness import Check, Result, Row


def machine() -> dict[str, Any]:
    """What a reader needs to know before comparing figures of two runs."""
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "system": platform.platform(),
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None,
        "pillarbox": pillarbox.__version__,
    }


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or platform.machine())


def show(console: Console, result: Result) -> None:
    """One table: what each costs, how it compares, and whether its targets are met."""
    timed = any(row.unit == "ns" for row in result.rows)
    table = Table(title=result.name, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD)
    table.add_column("")
    table.add_column("each" if timed else "value", justify="right")
    if timed:
        table.add_column("a second", justify="right")
        table.add_column("spread", justify="right")
        table.add_column("ratio")
    table.add_column("target")
    table.add_column("")
    noted = any(row.note for row in result.rows)
    if noted:
        table.add_column("what it lacks", overflow="fold")
    for row in result.rows:
        if not row.rounds:
            table.add_row(row.name, *[""] * 6, row.note)
            continue
        cells = [row.name, f"{_number(row.value)} {row.unit}"]
        if timed:
            cells += [f"{1e9 / row.value:,.0f}", _spread(row)]
        note = [row.note] if noted else []
        for check in row.checks or (None,):  # the first on the row's own line, others below it
            table.add_row(*cells, *_compared(check, timed), *note)
            cells, note = [""] * len(cells), []
    console.print(table)


def _compared(check: Check | None, timed: bool) -> list[str | Text]:
    if check is None:
        return [""] * (3 if timed else 2)
    ratio = [f"{check.value:.2f} {check.what}"] if timed else []
    return [*ratio, _bound(check), _verdict(check)]


def _number(value: float) -> str:
    if value >= 100 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:,.1f}" if value >= 10 else f"{value:.2f}"


def _spread(row: Row) -> str:
    """How far apart the rounds were: a wide spread means a busy machine."""
    return f"{(max(row.rounds) - min(row.rounds)) / row.value:.0%}"


def _bound(check: Check) -> str:
    if check.at_least is not None:
        return f"at least {check.at_least:g}"
    return "" if check.at_most is None else f"at most {check.at_most:g}"


def _verdict(check: Check) -> Text:
    if check.met is None:
        return Text("")
    return Text("met", "green") if check.met else Text("NOT MET", "bold red")


def summarise(console: Console, results: Iterable[Result]) -> None:
    """How many targets are met, and by name those that are not."""
    pairs = [
        (f"{result.name}: {row.name}", check)
        for result in results
        for row in result.rows
        for check in row.checks
        if check.met is not None
    ]
    missed = [(name, check) for name, check in pairs if not check.met]
    console.print(f"{len(pairs) - len(missed)} of {len(pairs)} targets met")
    for name, check in missed:
        value = f"{check.value:,.2f} {check.what}, should be {_bound(check)}"
        console.print(Text.assemble(("NOT MET  ", "bold red"), f"{name}: {value}"))


def save(path: Path, facts: dict[str, Any], results: dict[str, list[Result]]) -> None:
    """All of it: `results` is by suite."""
    suites = {suite: [_plain(result) for result in found] for suite, found in results.items()}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"machine": facts, "suites": suites}, indent=2) + "\n", "utf-8")


def _plain(result: Result) -> dict[str, Any]:
    rows = [
        {
            "name": row.name,
            "unit": row.unit,
            "median": row.value if row.rounds else None,
            "rounds": row.rounds,
            "note": row.note,
            "checks": [asdict(check) | {"met": check.met} for check in row.checks],
        }
        for row in result.rows
    ]
    return {"name": result.name, "rows": rows}
