"""`pillarbox doctor`: check that this machine can run Pillarbox, and suggest fixes."""

from __future__ import annotations

import re
import shutil
import socket
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from rich.text import Text

from pillarbox import __version__
from pillarbox.cli import output
from pillarbox.cli.backends import waiting_for
from pillarbox.cli.deployment import (
    REDIS_MIN,
    Finding,
    check_deployment,
    clock,
    free_space,
    sync_speed,
)
from pillarbox.cli.options import Json, app
from pillarbox.cli.output import FAILED, OK

_COLOURS = {"good": "green", "absent": "yellow", "warning": "yellow", "bad": "bold red"}
_REQUIREMENT = re.compile(r"([\w.-]+).*; extra == ['\"]([\w-]+)['\"]")


@app.command(help_epilogue="Example: pillarbox doctor http://localhost:9324")
def doctor(
    url: Annotated[
        str | None, Parameter(help="URL of a queue, a broker or a store to check instead.")
    ] = None,
    /,
    *,
    data: Annotated[str, Parameter(help="Directory on the disk to check.")] = "./data",
    redis: Annotated[str, Parameter(help="host:port of Redis.")] = "127.0.0.1:6379",
    json: Json = False,
) -> int:
    """Check this machine, or the deployment behind a URL, and suggest fixes.

    Without a URL: Python, the extras, Java, Redis, the disk and the clock. With a URL:
    durability, clock, versions, permissions, disk space and replication. The exit code is 1 if
    a check fails; a missing extra is not a failure.
    """
    if url is not None:
        with waiting_for(url):
            findings = check_deployment(url)
    else:
        with output.waiting("checking this machine"):
            findings = list(_check_machine(Path(data).absolute(), redis))
    rows = [(x.what, Text(x.state, style=_COLOURS[x.state]), x.found, x.advice) for x in findings]
    shown = output.table(("check", "state", "found", "what to do"), rows)
    output.show([finding._asdict() for finding in findings], shown, json=json)
    return FAILED if any(finding.state == "bad" for finding in findings) else OK


def _check_machine(data: Path, redis: str) -> Iterator[Finding]:
    # Python is new enough: an older one could not import this module.
    yield Finding("Python", "good", f"{sys.version.split()[0]}, Pillarbox {__version__}")
    for name, packages in _extras().items():
        yield _extra(name, packages)
    yield _java()
    yield _redis(redis)
    directory = next(each for each in (data, *data.parents) if each.is_dir())
    yield sync_speed(directory)
    yield free_space(shutil.disk_usage(directory).free, f"in {directory}")
    yield clock()


def _extras() -> dict[str, list[str]]:
    """Return the packages that each extra installs."""
    packages: dict[str, list[str]] = {}
    for requirement in metadata.requires("pillarbox") or ():
        if match := _REQUIREMENT.match(requirement):
            packages.setdefault(match[2], []).append(match[1])
    return packages


def _extra(extra: str, packages: list[str]) -> Finding:
    versions = []
    for package in packages:
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
    if major.isdecimal() and int(major) < REDIS_MIN:
        return Finding("Redis", "bad", version, f"install Redis {REDIS_MIN} or newer")
    return Finding("Redis", "good", f"{version} at {address}")
