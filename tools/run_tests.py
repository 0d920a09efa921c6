"""`make test`: the tests in two halves at a time, for two cores.

One half is the core and what proves it, the contract on every backend included, measured for
coverage; the other half starts Spark, browsers and workers. Each half is one pytest; what they
say is printed as it comes, with the name of the half before it.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
CORE = ("broker", "bus", "contract", "core", "deploy", "docs", "durable", "log", "model", "unit")


def halves() -> dict[str, list[str]]:
    """Every folder of tests is in one half, so that none is forgotten."""
    folders = [each for each in sorted((ROOT / "tests").iterdir()) if any(each.rglob("test_*.py"))]
    return {
        "core": [str(each) for each in folders if each.name in CORE],
        "rest": [str(each) for each in folders if each.name not in CORE] + [str(ROOT / "examples")],
    }


def main() -> int:
    pytest = ["-m", "pytest", "-p", "no:cacheprovider", "--durations=15", *sys.argv[1:]]
    commands = {
        "core": ["-m", "coverage", "run", *pytest],
        "rest": pytest,
    }
    codes: dict[str, int] = {}
    threads = [
        threading.Thread(target=_run, args=[name, [*commands[name], *paths], codes])
        for name, paths in halves().items()
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for name, code in codes.items():
        print(f"{name}: {'passed' if code == 0 else f'FAILED with exit code {code}'}")
    return int(any(codes.values()))


def _run(name: str, arguments: list[str], codes: dict[str, int]) -> None:
    started = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, *arguments],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    assert process.stdout is not None
    for line in process.stdout:
        print(f"{name} {time.monotonic() - started:5.0f}s | {line}", end="", flush=True)
    codes[name] = process.wait()


if __name__ == "__main__":
    sys.exit(main())
