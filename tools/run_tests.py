"""`make test`: the tests in shares, three of them at a time, for two cores.

Each share is one pytest over some folders; its output is printed as it comes, with the name of the
share before it. Spark has a share of its own, so that all its tests can use one session.

Coverage: the share "core" alone must cover the core whole, branches included (`.coverage-core`).
The other shares are measured by lines, for all of src (`.coverage`), except "disk": its simulated
crashes would take twice as long. Other processes (a broker under test, Spark's Python workers) are
not measured either.
"""

from __future__ import annotations

import queue
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

from coverage import CoverageData

ROOT = Path(__file__).parents[1]
AT_A_TIME = 3  # much of the time is spent waiting
# What takes long first, and the shorter ones last, so that both cores are busy to the end.
SHARES = {
    "spark": ("spark", "demo"),
    "rest": (),  # every folder that is in no other share
    "core": ("core", "model", "unit", "contract/test_memory.py"),
    "contract": ("contract",),
    "servers": ("broker", "redis", "postgres", "sqs"),
    "disk": ("log", "durable"),
    "ui": ("ui",),
}
MEASURED = {
    "core": ["--branch", "--source=src/pillarbox/core"],
    "contract": [],
    "rest": [],
    "servers": [],
    "spark": [],
    "ui": [],
}


def shares() -> dict[str, list[str]]:
    """The paths of each share. No folder is in none: what is new falls to the rest."""
    named = {path for paths in SHARES.values() for path in paths}
    folders = sorted(each.name for each in (ROOT / "tests").iterdir() if any(each.rglob("test_*")))
    result = {name: [f"tests/{path}" for path in paths] for name, paths in SHARES.items()}
    result["rest"] += [f"tests/{name}" for name in folders if name not in named] + ["examples"]
    result["contract"] += ["--deselect=tests/contract/test_memory.py"]  # core has it
    return result


def main() -> int:
    # A program that a shell started in the background ignores Ctrl-C; the tests would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # Some 80 MB from far away, while others work; the tests that need them wait.
    fetching = [
        subprocess.Popen([sys.executable, "-m", f"tools.{name}_jars"], cwd=ROOT)
        for name in ("s3", "hdfs")
    ]
    work: queue.SimpleQueue[tuple[str, list[str]]] = queue.SimpleQueue()
    for share in shares().items():
        work.put(share)
    codes: dict[str, int] = {}
    failures: list[str] = []
    threads = [
        threading.Thread(target=_work, args=[work, codes, failures]) for _ in range(AT_A_TIME)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for process in fetching:
        process.wait()
    for name, code in codes.items():
        print(f"{name}: {'passed' if code == 0 else f'FAILED with exit code {code}'}")
    # Again and last: whoever sees only the end of a long output must see what failed.
    print("".join(failures), end="")
    _combine()
    return int(len(codes) != len(SHARES) or any(codes.values()))


def _work(
    work: queue.SimpleQueue[tuple[str, list[str]]], codes: dict[str, int], failures: list[str]
) -> None:
    while True:
        try:
            name, paths = work.get_nowait()
        except queue.Empty:
            return
        codes[name] = _run(name, paths, failures)


def _run(name: str, paths: list[str], failures: list[str]) -> int:
    command = [sys.executable]
    if name in MEASURED:
        command += ["-m", "coverage", "run", f"--data-file=.coverage-{name}", *MEASURED[name]]
    options = ["-p", "no:cacheprovider", "--durations=15", *sys.argv[1:]]
    started = time.monotonic()
    process = subprocess.Popen(
        [*command, "-m", "pytest", *options, *paths],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    assert process.stdout is not None
    for line in process.stdout:
        print(f"{name:8} {time.monotonic() - started:5.0f}s | {line}", end="", flush=True)
        if line.startswith(("FAILED ", "ERROR ")):
            failures.append(line)
    return process.wait()


def _combine() -> None:
    """Make one file of the lines that the shares ran; `coverage combine` takes no branches."""
    everything = CoverageData(str(ROOT / ".coverage"))
    for name in MEASURED:
        measured = CoverageData(str(ROOT / f".coverage-{name}"))
        measured.read()
        everything.add_lines(
            {file: measured.lines(file) or [] for file in measured.measured_files()}
        )
    everything.write()


if __name__ == "__main__":
    sys.exit(main())
