"""`make test`: the tests in two halves at a time, for two cores.

One half is the core, the log and what stands on them in this process, measured for coverage;
the other half starts servers, browsers and Spark, and waits for them most of the time. Each
half is one pytest; what they say is printed as it comes, with the name of the half before it.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
INSIDE = ("core", "model", "log", "durable", "unit", "docs", "deploy", "typing")
CONTRACT_INSIDE = ("test_memory.py", "test_async_memory.py", "test_durable.py",
                   "test_the_suite_itself.py")  # fmt: skip


def halves() -> dict[str, list[str]]:
    """Every folder and file of tests is in one half, so that none is forgotten."""
    inside, outside = [], []
    for entry in sorted((ROOT / "tests").iterdir()):
        if entry.name == "contract":
            for file in sorted(entry.glob("test_*.py")):
                (inside if file.name in CONTRACT_INSIDE else outside).append(str(file))
        elif entry.is_dir() and any(entry.rglob("test_*.py")):
            (inside if entry.name in INSIDE else outside).append(str(entry))
    if (ROOT / "examples").is_dir():
        outside.append(str(ROOT / "examples"))
    return {"inside": inside, "outside": outside}


def main() -> int:
    pytest = ["-m", "pytest", "-p", "no:cacheprovider", "--durations=15", *sys.argv[1:]]
    commands = {
        "inside": ["-m", "coverage", "run", *pytest],
        "outside": pytest,
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
    return max(codes.values())


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
        print(f"{name:>7} {time.monotonic() - started:5.0f}s | {line}", end="", flush=True)
    codes[name] = process.wait()


if __name__ == "__main__":
    sys.exit(main())
