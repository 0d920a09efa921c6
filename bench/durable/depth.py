"""Whether a cycle on disk costs more when many messages wait.

This module as a program measures it: a process for each depth, asked in turns, so that the
housekeeping of a long line does not slow a short one. It belongs to the cost of its own line.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from statistics import median
from time import perf_counter_ns

from bench.durable.place import work_directory
from bench.durable.stores import at_rest, filled, opened
from bench.harness import ROUNDS, Figure, Probe, Sized

DEPTHS = (1_000, 100_000, 1_000_000, 5_000_000)
CYCLES = 20_000
BODY_BYTES = 200


def waiting(sized: Sized) -> Probe:
    depths = [sized(depth) for depth in DEPTHS]
    return Probe(
        "full cycle behind a long line, left to the operating system",
        "bench.durable.depth",
        ("measure", str(sized(CYCLES)), *map(str, depths)),
        (
            *(Figure(str(depth), f"{depth:,} waiting", "us") for depth in depths),
            *(
                Figure(f"{depth}_ratio", f"{depth:,} to {depths[0]:,}", "x", at_most=1.3)
                for depth in depths[1:]
            ),
        ),
    )


def measure(cycles: int, *depths: int) -> dict[str, float]:
    costs: dict[int, list[float]] = {depth: [] for depth in depths}
    with ExitStack() as stack:
        lines = [(depth, stack.enter_context(_line(depth, cycles))) for depth in depths]
        for number in range(ROUNDS + 1):
            for depth, line in lines:
                cost = _ask(line)
                if number:
                    costs[depth].append(cost)
            lines.reverse()
    found = {str(depth): median(costs[depth]) / 1_000 for depth in depths}
    for depth in depths[1:]:
        pairs = zip(costs[depth], costs[depths[0]], strict=True)
        found[f"{depth}_ratio"] = median(mine / theirs for mine, theirs in pairs)
    return found


@contextmanager
def _line(depth: int, cycles: int) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "bench.durable.depth", "serve", str(cycles), str(depth)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        _answer(process)
        yield process
        process.communicate("end\n")


def _ask(process: subprocess.Popen[str]) -> float:
    assert process.stdin is not None
    process.stdin.write("go\n")
    process.stdin.flush()
    return _answer(process)


def _answer(process: subprocess.Popen[str]) -> float:
    assert process.stdout is not None
    return float(process.stdout.readline())


def serve(cycles: int, depth: int) -> None:
    """Be the line: for each word on standard input, one round."""
    with work_directory() as path:
        box = opened(path / "store")
        filled(box, depth, BODY_BYTES)
        at_rest(box)
        os.sync()  # the fill is not what is measured, nor the writing of it to the disk
        print(0, flush=True)
        send, receive = box.send, box.receive
        body = bytes(BODY_BYTES)
        for word in sys.stdin:
            if word != "go\n":
                break
            start = perf_counter_ns()
            for _ in range(cycles):
                send(body)
                (message,) = receive()
                message.acknowledge()
            cost = (perf_counter_ns() - start) / cycles
            at_rest(box)
            print(cost, flush=True)
        assert box.approximate_count() == depth
        box.close()


def main() -> None:
    what, *numbers = sys.argv[1:]
    if what == "serve":
        serve(*map(int, numbers))
    else:
        print(json.dumps(measure(*map(int, numbers))))


if __name__ == "__main__":
    main()
