"""The Python that Spark's workers run: a wrapper script of the driver's Python that starts faster.

Spark puts a zip of PySpark's sources first on PYTHONPATH, and Python compiles them again in every
process. The installed PySpark is already compiled; with it a worker starts in a third of the time.
Spark waits only ten seconds for a worker to start. The jar beside that zip contains no Python.

No Spark setting replaces the daemon of the processes that plan and commit, so the script starts
our daemon instead. Processes of streaming sources have no daemon; the script asks ours to fork
them.
"""

from __future__ import annotations

import importlib.metadata
import os
import shlex
import sys
from typing import Any

from pillarbox.spark import fork_client, fork_server
from pillarbox.spark.scripts import script
from pillarbox.spark.shipping import OWN

_SCRIPT = """#!/bin/sh
kept=
IFS=:
for path in $PYTHONPATH; do
    case "$path" in
    */pyspark.zip | */py4j-*-src.zip | */spark-core_*.jar) ;;
    *) kept="$kept:$path" ;;
    esac
done
export PYTHONPATH="${{kept#:}}" {socket}="$0.$PPID"
if [ "$1 $2" = "-m pyspark.daemon" ]; then
    shift 2
    set -- -m {daemon} "$@"
elif [ "$1 $2" = "-m {runner}" ] && [ -S "${socket}" ]; then
    exec {python} -I -S {forked} "${socket}" {python} "$@"
fi
exec {python} "$@"
"""
OUR_DAEMON = "pillarbox.spark.daemon"
_VARIABLES = ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON")


def is_installed() -> bool:
    """Return whether Pillarbox is installed for the driver's Python."""
    return any(importlib.metadata.distributions(name=OWN))


def choose_python(*, local: bool) -> bool:
    """Make workers run the driver's Python, unless the user has chosen another.

    Returns whether they do. The wrapper script is used only on this machine, with the PySpark
    that is installed for this Python.
    """
    wrapper = _wrapper() if os.name == "posix" else sys.executable
    chosen = wrapper if local and "SPARK_HOME" not in os.environ else sys.executable
    for name in _VARIABLES:
        if os.environ.get(name) in (None, wrapper):
            os.environ[name] = chosen
    return os.environ[_VARIABLES[0]] in (chosen, sys.executable)


def runs_our_python(context: Any) -> bool:
    """Return whether workers of a context run the driver's Python.

    If no Python was chosen before the context was created, Spark runs the `python3` on the PATH,
    which may lack PySpark and Pillarbox. Then set the driver's Python for functions from now on.
    """
    chosen = os.environ.get(_VARIABLES[0])
    if chosen is None:
        context.pythonExec = sys.executable
        return False
    return chosen in (sys.executable, _wrapper() if os.name == "posix" else None)


def _wrapper() -> str:
    daemon = OUR_DAEMON if is_installed() else "pyspark.daemon"
    text = _SCRIPT.format(
        python=shlex.quote(sys.executable),
        daemon=daemon,
        socket=fork_server.SOCKET,
        runner=fork_server.RUNNER,
        forked=shlex.quote(fork_client.__file__),
    )
    return f"{script('python', sys.executable, 'bin/python', text)}/bin/python"
