"""Fetch jars from Maven Central into a directory of .venv, through Ivy, which PySpark has.

What is there already is not fetched again.
"""

from __future__ import annotations

import fcntl
import shutil
import subprocess
import tempfile
from pathlib import Path

import pyspark

from pillarbox.spark.java import find_java

ROOT = Path(__file__).resolve().parents[1]
#: Maven Central alone, which is Ivy's own default.
SETTINGS = """<ivysettings><settings defaultResolver="central"/>
<resolvers><ibiblio name="central" m2compatible="true"/></resolvers></ivysettings>"""


class UnreachableError(Exception):
    """The jars are not there and can't be fetched."""


def jars_in(name: str, packages: str, *, excludes: str = "", transitive: bool = True) -> list[Path]:
    """The jars in .venv/<name>, fetched if need be; one process does that, others wait for it."""
    target = ROOT / ".venv" / name
    target.parent.mkdir(exist_ok=True)
    with open(f"{target}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.is_dir():
            _fetch(target, _module(packages, excludes, transitive=transitive))
    return sorted(target.glob("*.jar"))


def _module(packages: str, excludes: str, *, transitive: bool) -> str:
    """What Ivy is asked for; packages are as Spark's `spark.jars.packages` has them."""
    asked = "".join(
        f'<dependency org="{org}" name="{name}" rev="{version}" conf="default->default"'
        f' transitive="{str(transitive).lower()}"/>'
        for org, name, version in (each.split(":") for each in packages.split(","))
    )
    for org, name in (each.split(":") for each in excludes.split(",") if each):
        asked += f'<exclude org="{org}" module="{name}"/>'
    module = '<ivy-module version="2.0"><info organisation="pillarbox" module="jars"/>'
    return f"{module}<dependencies>{asked}</dependencies></ivy-module>"


def _fetch(target: Path, module: str) -> None:
    with tempfile.TemporaryDirectory() as place:
        Path(place, "settings.xml").write_text(SETTINGS)
        Path(place, "ivy.xml").write_text(module)
        (ivy,) = Path(pyspark.__file__).parent.glob("jars/ivy-*.jar")
        command = [f"{find_java()}/bin/java", "-jar", str(ivy)]
        command += ["-settings", f"{place}/settings.xml", "-ivy", f"{place}/ivy.xml"]
        command += ["-cache", f"{place}/cache", "-types", "jar"]
        command += ["-retrieve", f"{place}/jars/[artifact]-[revision].[ext]"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise UnreachableError(f"{target.name} can't be fetched:\n{done.stdout[-4000:]}")
        shutil.rmtree(target, ignore_errors=True)
        shutil.move(f"{place}/jars", target)
