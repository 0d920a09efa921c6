"""The Python that Spark's workers run: the driver's own, started so that it comes up quickly.

Spark puts a zip with the sources of PySpark before everything else, and Python compiles these
anew in every process. Where PySpark is installed, that copy is compiled already: a worker takes
a third of the time to start. Spark waits for it ten seconds, and no more.

Those that plan and commit come from a daemon that no setting of Spark's names; the script puts
ours in its place. Those of streaming sources come from no daemon; the script has ours fork them.
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
    */pyspark.zip | */py4j-*-src.zip) ;;
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
    """Whether the driver's own Python finds Pillarbox wherever it is started."""
    return any(importlib.metadata.distributions(name=OWN))


def choose_python(*, local: bool) -> bool:
    """Workers run what the driver runs, whatever `python3` is; a choice of the user's stays.

    True if they do run that. The script is for this machine, and for the PySpark that is
    installed for this Python.
    """
    quick = _quick() if os.name == "posix" else sys.executable
    chosen = quick if local and "SPARK_HOME" not in os.environ else sys.executable
    for name in _VARIABLES:
        if os.environ.get(name) in (None, quick):
            os.environ[name] = chosen
    return os.environ[_VARIABLES[0]] in (chosen, sys.executable)


def runs_our_python(context: Any) -> bool:
    """Whether the JVM of a context was told to run what the driver runs.

    If nobody chose a Python before the context was created, Spark runs the `python3` on PATH,
    which may know neither PySpark nor Pillarbox; what is sent to workers from now on names ours.
    """
    chosen = os.environ.get(_VARIABLES[0])
    if chosen is None:
        context.pythonExec = sys.executable
        return False
    return chosen in (sys.executable, _quick() if os.name == "posix" else None)


def _quick() -> str:
    daemon = OUR_DAEMON if is_installed() else "pyspark.daemon"
    text = _SCRIPT.format(
        python=shlex.quote(sys.executable),
        daemon=daemon,
        socket=fork_server.SOCKET,
        runner=fork_server.RUNNER,
        forked=shlex.quote(fork_client.__file__),
    )
    return f"{script('python', sys.executable, 'bin/python', text)}/bin/python"
