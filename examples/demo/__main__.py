"""`python -m examples.demo`: run the shop, print the result, and serve until Ctrl-C."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from rich.console import Console
from rich.table import Table

from examples.demo import totals as pipeline_of
from examples.demo.shop import CLERKS, Clerks, Day, Order, Totals, is_order
from pillarbox import open_mailbox
from pillarbox.pipeline import Pipeline

ORDERS = 1_200
STEPS = 6
_PORT = 9324
_PATIENCE_SECONDS = 120


@contextmanager
def _broker(data: str) -> Iterator[str]:
    """Run a broker in a process of its own, on its default port if that is free."""
    command = [sys.executable, "-m", "pillarbox.cli", "serve", "--data", data, "--json"]
    command += ["--pipelines", f"{data}/pipelines", "--port"]
    for port in (_PORT, 0):
        process = subprocess.Popen(  # noqa: S603 - our own module
            [*command, str(port)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        assert process.stdout is not None
        line = process.stdout.readline()
        if line:
            break
        process.wait()
    else:
        raise SystemExit("the broker did not start; try: pillarbox serve")
    try:
        yield json.loads(line)["url"]
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()


def main() -> int:
    """Run the demo; leaves no process and no file behind, however it ends."""
    for number in (signal.SIGTERM, signal.SIGHUP):  # SIGHUP: the terminal was closed
        signal.signal(number, signal.default_int_handler)
    console = Console(highlight=False)
    try:
        return _run(console)
    except KeyboardInterrupt:
        console.print("stopped")
        return 130


def _run(console: Console) -> int:
    with tempfile.TemporaryDirectory(prefix="pillarbox-demo-") as data, _broker(data) as url:
        console.print(f"[bold]Pillarbox[/]: a broker, and its dashboard at [bold]{url}/[/]\n")
        exact = _business(console, data, url)
        if not os.environ.get("ONCE"):
            console.print(f"\nLook around at [bold]{url}/[/]; press Ctrl-C to stop.")
            with suppress(KeyboardInterrupt):
                threading.Event().wait()
    return 0 if exact else 1


def _business(console: Console, data: str, url: str) -> bool:
    day = Day(ORDERS)
    box = open_mailbox(f"{url}/orders", Order)
    started = time.perf_counter()
    repeated = day.send(box)
    rate = ORDERS / (time.perf_counter() - started)
    console.print(
        f"{ORDERS:,} orders sent, each confirmed on disk, {rate:,.0f} per second: "
        f"{len(day.urgent)} urgent, {len(day.later)} delayed, {day.late} out of order, "
        f"{day.poison} that fail, and {repeated} duplicates, each stored once"
    )
    clerks = Clerks(box)
    outcome: list[Totals] = []
    runs: list[subprocess.Popen[bytes]] = []
    work = threading.Thread(
        target=lambda: outcome.append(_add_up(console, data, runs)), daemon=True
    )
    work.start()
    try:
        dead = _work_off(console, clerks, day, url)
        work.join()
    finally:
        for run in runs:
            run.kill()
            run.wait()
    packed = clerks.packed
    clerks.stop()
    if not outcome:
        said = Path(data, "pipeline.log").read_text(errors="replace").splitlines()
        console.print("[red]the pipeline failed; the end of its log:[/]")
        console.print(*said[-20:], sep="\n", markup=False)
        return False
    exact = outcome[0] == day.totals and packed == ORDERS
    console.print(_table(day, clerks, outcome[0], dead))
    first = clerks.first_urgent[: len(day.urgent)]
    console.print(
        f"{sum(first)} of the first {len(first)} orders packed were urgent; "
        f"{packed:,} of {ORDERS:,} packed; totals {'exact' if exact else '[red]WRONG[/]'}."
    )
    return exact


def _add_up(console: Console, data: str, runs: list[subprocess.Popen[bytes]]) -> Totals:
    """Run the pipeline, kill it midway, run it again."""
    pipeline = pipeline_of.build(data)
    console.print("the pipeline starts on Spark, reading the mailbox's history")
    first = pipeline_of.start(data, ORDERS // STEPS)
    runs.append(first)
    killed = _follow(console, first, pipeline, pipeline_of.KILL_AFTER_STEPS)
    if first.poll() is not None:
        raise SystemExit(f"the pipeline ended too early, with exit code {first.returncode}")
    first.kill()
    first.wait()
    console.print(
        f"the pipeline was killed (SIGKILL) after {killed} steps; it is started again and goes on"
        " from there"
    )
    second = pipeline_of.start(data, ORDERS // STEPS)
    runs.append(second)
    _follow(console, second, pipeline)
    if second.wait() != 0:
        raise SystemExit(f"the pipeline failed with exit code {second.returncode}")
    return pipeline_of.read_totals(pipeline)


def _follow(
    console: Console, process: subprocess.Popen[bytes], pipeline: Pipeline, until: int | None = None
) -> int:
    """Print the progress of a run until it has done `until` steps or has ended."""
    done, started = 0, time.monotonic()
    for step, rows in pipeline_of.steps(process, pipeline):
        if step > done:
            console.print(f"  step {step}: {rows:,} records of the history read")
        else:
            doing = f"at step {step + 1}" if step else "starting Spark"
            console.print(f"  {doing}, {time.monotonic() - started:.0f} s so far")
        done = step
        if until is not None and done >= until:
            break
    return done


def _work_off(console: Console, clerks: Clerks, day: Day, url: str) -> int:
    """Wait for the clerks, then redrive the dead letters; returns their number."""
    _wait(lambda: clerks.packed >= ORDERS - day.poison)
    letters = open_mailbox(f"{url}/orders_dlq", Order)
    _wait(lambda: letters.stats().ready >= day.poison)
    clerks.mended = True
    moved = letters.redrive(where=is_order)
    console.print(
        f"{moved} orders failed 5 times and were dead-lettered; the fault was fixed, and they "
        "were redriven"
    )
    _wait(lambda: clerks.packed >= ORDERS)
    letters.close()
    return moved


def _wait(done: object) -> None:
    assert callable(done)
    until = time.monotonic() + _PATIENCE_SECONDS
    while not done():
        if time.monotonic() > until:
            raise SystemExit("the clerks are stuck; please report this")
        time.sleep(0.05)


def _table(day: Day, clerks: Clerks, found: Totals, dead: int) -> Table:
    table = Table(title="\norders sent, and the totals of the pipeline", min_width=60)
    for name in ("tea", "sent", "grams", "added up", "grams added up"):
        table.add_column(name, justify="left" if name == "tea" else "right")
    for tea, (orders, grams) in day.totals.items():
        seen = found.get(tea, (0, 0))
        table.add_row(tea, f"{orders:,}", f"{grams:,}", f"{seen[0]:,}", f"{seen[1]:,}")
    work = ", ".join(f"{name} packed {len(clerks.done[name]):,}" for name in CLERKS)
    table.caption = f"{work}; {dead} dead letters redriven"
    return table


if __name__ == "__main__":
    sys.exit(main())
