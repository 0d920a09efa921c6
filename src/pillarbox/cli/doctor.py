"""`pillarbox doctor`: check that this machine can run Pillarbox, and suggest fixes."""

from __future__ import annotations

import os
import shutil
import socket
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

from cyclopts import Parameter
from rich.text import Text

from pillarbox import __version__
from pillarbox.cli import output
from pillarbox.cli.options import Json, command
from pillarbox.cli.output import FAILED, OK

app = command(
    "doctor",
    "Check Python, the extras, Java, Redis, the disk and the clock, and suggest fixes.",
    "Example: pillarbox doctor --data ./data",
)

_SYNCS = 50
_SLOW_SYNC_MS = 20.0
_FREE_BYTES_MIN = 1 << 30
_SKEW_SECONDS_MAX = 1.0
_REDIS_MIN = 7
_COLOURS = {"good": "green", "absent": "yellow", "bad": "bold red"}
_EXTRAS = {
    "broker": ("uvloop", "jinja2", "prometheus-client"),
    "redis": ("redis",),
    "sqs": ("boto3", "aiobotocore"),
    "spark": ("pyspark", "pyarrow"),
    "delta": ("deltalake",),
    "mcp": ("mcp",),
    "telemetry": ("opentelemetry-api",),
}


class Finding(NamedTuple):
    """The result of one check."""

    what: str
    state: Literal["good", "absent", "bad"]
    found: str
    advice: str = ""


@app.default
def doctor(
    *,
    data: Annotated[
        str, Parameter(help="Directory on the disk to check (default: ./data).")
    ] = "./data",
    redis: Annotated[
        str, Parameter(help="host:port of Redis (default: 127.0.0.1:6379).")
    ] = "127.0.0.1:6379",
    json: Json = False,
) -> int:
    """Run all checks; the exit code is 1 if something is bad. Absent extras are fine."""
    directory = _existing(Path(data).absolute())
    checks: list[Callable[[], Finding]] = [
        _python,
        *(partial(_extra, extra) for extra in _EXTRAS),
        _java,
        lambda: _redis(redis),
        lambda: _sync_speed(directory),
        lambda: _space(directory),
        _clock,
    ]
    findings = [check() for check in checks]
    rows = [
        # As text, since rich would take [broker] for markup.
        (x.what, Text(x.state, style=_COLOURS[x.state]), Text(x.found), Text(x.advice))
        for x in findings
    ]
    shown = output.table(("check", "state", "found", "what to do"), rows)
    output.show([finding._asdict() for finding in findings], shown, json=json)
    return FAILED if any(finding.state == "bad" for finding in findings) else OK


def _existing(path: Path) -> Path:
    return next(each for each in (path, *path.parents) if each.is_dir())


def _python() -> Finding:
    # A Python that is too old does not get this far.
    return Finding("Python", "good", f"{sys.version.split()[0]}, Pillarbox {__version__}")


def _extra(extra: str) -> Finding:
    versions = []
    for package in _EXTRAS[extra]:
        try:
            versions.append(f"{package} {metadata.version(package)}")
        except metadata.PackageNotFoundError:
            advice = f"optional: pip install 'pillarbox[{extra}]'"
            return Finding(f"extra {extra}", "absent", f"no {package}", advice)
    return Finding(f"extra {extra}", "good", ", ".join(versions))


def _java() -> Finding:
    try:
        from pillarbox.spark.java import find_java  # noqa: PLC0415 - behind an extra

        home = find_java()
    except ImportError:
        return Finding("Java", "absent", "not checked", "pip install 'pillarbox[spark]'")
    except Exception as error:  # noqa: BLE001 - any error is the result
        return Finding("Java", "absent", str(error), "apt install openjdk-17-jre-headless")
    return Finding("Java", "good", str(home))


def _redis(address: str) -> Finding:
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host, int(port)), timeout=1) as link:
            link.sendall(b"INFO server\r\n")
            reply = link.recv(4096).decode("ascii", "replace")
    except (OSError, ValueError):
        program = shutil.which("redis-server")
        found = f"no answer at {address}" + (f"; {program} is installed" if program else "")
        return Finding("Redis", "absent", found, "optional: start redis-server, or give --redis")
    version = next(
        (line[14:] for line in reply.splitlines() if line.startswith("redis_version:")), "?"
    )
    major = version.partition(".")[0]
    if major.isdecimal() and int(major) < _REDIS_MIN:
        return Finding("Redis", "bad", version, f"install Redis {_REDIS_MIN} or newer")
    return Finding("Redis", "good", f"{version} at {address}")


def _sync_speed(directory: Path) -> Finding:
    """The shortest time that a confirmed send waits for the disk."""
    try:
        with tempfile.TemporaryFile(dir=directory) as file:
            handle = file.fileno()
            os.pwrite(handle, b"\0" * 4096 * _SYNCS, 0)
            os.fsync(handle)
            times = []
            for i in range(_SYNCS):
                started = time.perf_counter()
                os.pwrite(handle, b"\1" * 512, i * 4096)
                os.fdatasync(handle)
                times.append((time.perf_counter() - started) * 1_000)
    except OSError as error:
        return Finding("disk sync", "bad", str(error), f"make {directory} writable, or give --data")
    median = sorted(times)[_SYNCS // 2]
    found = f"{median:.2f} ms, about {1_000 / median:,.0f} single confirmed sends per second"
    if median > _SLOW_SYNC_MS:
        return Finding("disk sync", "bad", found, "use another disk, batches, or durability=os")
    return Finding("disk sync", "good", found)


def _space(directory: Path) -> Finding:
    free = shutil.disk_usage(directory).free
    found = f"{free / (1 << 30):,.1f} GiB free in {directory}"
    if free < _FREE_BYTES_MIN:
        return Finding("free space", "bad", found, "free some space: a store needs at least 1 GiB")
    return Finding("free space", "good", found)


def _clock() -> Finding:
    """Compare the wall clock with the monotonic one: a jump shows that it is being set."""
    wall, steady = time.time(), time.monotonic()
    time.sleep(0.1)
    drift = abs((time.time() - wall) - (time.monotonic() - steady))
    if drift > _SKEW_SECONDS_MAX or time.gmtime().tm_year < 2024:
        return Finding("clock", "bad", time.ctime(), "set the clock, and keep it with NTP")
    return Finding("clock", "good", f"{time.strftime('%Y-%m-%d %H:%M:%S %Z')}, steady")
