"""`python tools/figures.py`: put what the benchmarks measured into README and the documentation.

Reads bench/results/SUITE.json, as `make bench` writes them (a quick run writes other files), and
writes the tables between the marks of README.md and docs/index.md, and docs/reference/figures.md as
a whole. With `--check` it writes nothing; the exit code says whether all are up to date.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "bench" / "results"
README = ROOT / "README.md"
HOME = ROOT / "docs" / "index.md"
PAGE = ROOT / "docs" / "reference" / "figures.md"
SUITES = ("core", "durable", "broker", "redis", "postgres", "worker", "spark")
BEGIN, END = "<!-- figures -->\n", "<!-- /figures -->\n"

# What README shows: races, by how their names begin; the first contender is ours.
CHOSEN = (
    ("core", "full cycle, one thread"),
    ("durable", "send, one producer, confirmed on disk"),
    ("durable", "full cycle, 100 threads, confirmed on disk"),
    ("broker", "SendMessage, 32 connections"),
    ("broker", "Send, receive and delete, 32 connections"),
    ("broker", "one Python thread sends"),
    ("redis", "full cycle, one at a time"),
    ("redis", "full cycle, batches of 100"),
    ("postgres", "full cycle, one at a time"),
    ("postgres", "full cycle, batches of 100"),
    ("worker", "10,000 no-op tasks"),
    ("spark", "where + select over 4,000,000"),
    ("spark", "totals of 9,973 teas over 4,000,000"),
    ("spark", "a chain of three over 4,000,000"),
    ("spark", "reading 4,000,000 typed orders"),
)
_WHERE = {
    "core": "in memory",
    "durable": "on disk",
    "broker": "broker",
    "redis": "on Redis",
    "postgres": "on PostgreSQL",
    "worker": "workers",
    "spark": "on Spark",
}

_NOTHING = "-"

Suites = dict[str, Any]  # by suite: what its JSON holds


def load(folder: Path = RESULTS) -> Suites:
    """The suites that were measured, whole, not in a quick run."""
    found: Suites = {}
    for suite in SUITES:
        path = folder / f"{suite}.json"
        if path.exists():
            document = json.loads(path.read_text("utf-8"))
            if document["machine"].get("quick"):
                raise SystemExit(f"{path} is of a quick run, which measures nothing; delete it")
            found[suite] = document
    return found


def summary(suites: Suites, link: str = "docs/reference/figures.md") -> str:
    """The table of README: rates a second, ours and those of the others in the same run."""
    lines = ["| a second | Pillarbox | the others, in the same run |", "|---|--:|---|"]
    for suite, begins in CHOSEN:
        if suite not in suites:
            continue
        race = _named(suites, suite, begins)
        ours, *others = [row for row in race["rows"] if row["median"]]
        peers = " · ".join(f"{_cell(row['name'])} {_rate(row)}" for row in others)
        lines.append(f"| {_WHERE[suite]}: {_cell(race['name'])} | **{_rate(ours)}** | {peers} |")
    measured: dict[str, list[str]] = {}  # by what they were measured with
    for suite in dict.fromkeys(suite for suite, _ in CHOSEN if suite in suites):
        measured.setdefault(_machine(suites[suite]["machine"]), []).append(_WHERE[suite])
    told = "; ".join(f"{', '.join(rows)}: {machine}" for machine, rows in measured.items())
    lines += ["", f"Measured with: {told}. [All figures]({link})."]
    return "\n".join(lines) + "\n"


def page(suites: Suites) -> str:
    """Every row of every suite, with the machine that it was measured on."""
    lines = [
        "# Figures",
        "",
        "All results of `make bench`: every contender of every benchmark, and every target, met or",
        "missed. Rounds are interleaved. A figure is the median of its rounds, a ratio the median",
        "of the ratios of each round. Compare only figures of the same run.",
    ]
    for suite, document in suites.items():
        lines += ["", f"## {suite}", "", f"{_machine(document['machine'], full=True)}."]
        for benchmark in document["suites"][suite]:
            lines += ["", f"### {suite}: {benchmark['name']}", "", *_table(benchmark["rows"])]
    return "\n".join(lines) + "\n"


def put(path: Path, block: str) -> str:
    """The page with this block between its marks."""
    head, begin, rest = path.read_text("utf-8").partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not begin or not end:
        raise SystemExit(f"{path} has lost its marks {BEGIN.strip()} and {END.strip()}")
    return head + begin + block + end + tail


def _named(suites: Suites, suite: str, begins: str) -> Any:
    for benchmark in suites[suite]["suites"][suite]:
        if benchmark["name"].startswith(begins):
            return benchmark
    raise SystemExit(f"the suite {suite} has no benchmark {begins!r}; see CHOSEN in {__file__}")


def _table(rows: list[Any]) -> list[str]:
    lines = ["| | each | a second | compared | target | note |", "|---|--:|--:|---|---|---|"]
    for row in rows:
        checks = row["checks"] or [None]
        first = [_cell(row["name"]), _value(row), _rate(row) if row["unit"] == "ns" else ""]
        for number, check in enumerate(checks):
            cells = first if number == 0 else ["", "", ""]
            note = _cell(row["note"]) if number == 0 else ""
            lines.append(f"| {' | '.join([*cells, *_compared(check, row), note])} |")
    return lines


def _compared(check: Any, row: Any) -> tuple[str, str]:
    if check is None:
        return "", ""
    timed = row["unit"] == "ns"
    ratio = f"{check['value']:.2f} {_cell(check['what'])}" if timed else ""
    if check["at_least"] is not None:
        bound = f"at least {check['at_least']:g}"
    elif check["at_most"] is not None:
        bound = f"at most {check['at_most']:g}"
    else:
        return ratio, ""
    return ratio, f"{bound}: {'met' if check['met'] else '**missed**'}"


def _value(row: Any) -> str:
    if row["median"] is None:
        return _NOTHING
    value, unit = row["median"], row["unit"]
    if unit == "ns" and value >= 1_000:
        value, unit = value / 1_000, "µs"
    whole = value >= 100 or value == int(value)
    return f"{value:,.0f} {unit}".strip() if whole else f"{value:,.2f} {unit}".strip()


def _rate(row: Any) -> str:
    if row["median"] is None:
        return _NOTHING
    rounded = float(format(1e9 / row["median"], ".3g"))  # the machine is not exact to more
    return f"{rounded:,.0f}"


def _machine(facts: Any, *, full: bool = False) -> str:
    """What was measured where; `full` says more of the machine."""
    short = (
        f"Pillarbox {facts['pillarbox']}, {facts['python']}, {facts['cores']} cores of"
        f" {facts['cpu']}, {facts['date'][:10]}"
    )
    return f"{short}, {facts['system']}, load {facts['load']}" if full else short


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def main(check: bool) -> int:
    suites = load()
    wanted = {
        README: put(README, summary(suites)),
        HOME: put(HOME, summary(suites, "reference/figures.md")),
        PAGE: page(suites),
    }
    stale = [p for p, text in wanted.items() if not p.exists() or p.read_text("utf-8") != text]
    if not check:
        for path in stale:
            path.write_text(wanted[path], "utf-8")
    missing = [suite for suite in SUITES if suite not in suites]
    if missing:
        print(f"not measured: {', '.join(missing)}; try: make bench")
    for path in stale:
        print(f"{path.relative_to(ROOT)} {'is out of date' if check else 'written'}")
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main("--check" in sys.argv[1:]))
