"""`python -m bench [suite...]`: run benchmarks, print tables, save JSON."""

from __future__ import annotations

import argparse
import importlib
import pkgutil
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

import bench
from bench import report
from bench.harness import Benchmark, Result, full_size, quick_size

RESULTS = Path(__file__).parent / "results"
WIDTH_UNKNOWN = 150  # of a table that goes to a file or a pipe


def suites() -> list[str]:
    return sorted(module.name for module in pkgutil.iter_modules(bench.__path__) if module.ispkg)


def options() -> argparse.Namespace:
    known = suites()
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument(
        "suites", nargs="*", metavar="suite", help=f"{', '.join(known)}; all if none is named"
    )
    parser.add_argument("--quick", action="store_true", help="small numbers: a smoke test")
    parser.add_argument("--only", default="", metavar="TEXT", help="benchmarks with this in name")
    parser.add_argument(
        "--json", type=Path, metavar="PATH", help="one file, instead of one a suite in results/"
    )
    chosen = parser.parse_args()
    for name in chosen.suites:
        if name not in known:
            parser.error(f"no suite {name!r}: choose from {', '.join(known)}")
    chosen.suites = chosen.suites or known
    return chosen


def chosen_benchmarks(suite: str, only: str, quick: bool) -> list[Benchmark]:
    try:
        offered = importlib.import_module(f"bench.{suite}.suite").benchmarks
    except ModuleNotFoundError as error:
        raise SystemExit(
            f"the suite {suite} needs {error.name}; install the peers and run it with:"
            f" make bench ARGS={suite}"
        ) from error
    return [each for each in offered(quick_size if quick else full_size) if only in each.name]


def run_suite(suite: str, chosen: list[Benchmark], console: Console) -> list[Result]:
    progress = Progress(
        TextColumn("{task.description}", style="bold"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[doing]}"),
        console=console,
        transient=True,
        auto_refresh=False,  # drawn between rounds: a drawing thread would slow what is timed
    )
    results = []
    with progress:
        total = sum(benchmark.steps for benchmark in chosen)
        task = progress.add_task(suite, total=total, doing="")
        for benchmark in chosen:

            def step(doing: str, done: int, name: str = benchmark.name) -> None:
                progress.update(task, advance=done, doing=f"{name}: {doing}", refresh=True)

            results.append(benchmark.run(step))
            report.show(console, results[-1])
    return results


def main() -> None:
    chosen = options()
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = WIDTH_UNKNOWN
    facts = report.machine() | {"quick": chosen.quick}
    console.print("  ".join(f"{name}: {value}" for name, value in facts.items()))
    found: dict[str, list[Result]] = {}
    for suite in chosen.suites:
        benchmarks = chosen_benchmarks(suite, chosen.only, chosen.quick)
        found[suite] = run_suite(suite, benchmarks, console)
        if chosen.json is None and not chosen.only:  # part of a suite never replaces the whole
            path = RESULTS / f"{suite}{'.quick' if chosen.quick else ''}.json"
            report.save(path, facts, {suite: found[suite]})
            console.print(f"saved {path}")
    if chosen.json is not None:
        report.save(chosen.json, facts, found)
        console.print(f"saved {chosen.json}")
    report.summarise(console, [result for results in found.values() for result in results])


if __name__ == "__main__":
    main()
