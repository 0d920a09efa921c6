"""Fetch the jars with which Spark reaches S3 into .venv/s3-jars, through Ivy, which PySpark has.

`python -m tools.s3_jars`: the tests need them, on a new machine once. What is there already is
not fetched again.
"""

from __future__ import annotations

import fcntl
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pyspark

from pillarbox.spark.java import find_java
from pillarbox.spark.object_store import S3_EXCLUDES, S3_PACKAGES

ROOT = Path(__file__).resolve().parents[1]
JARS = ROOT / ".venv" / "s3-jars"
#: Maven Central alone, which is Ivy's own default.
SETTINGS = """<ivysettings><settings defaultResolver="central"/>
<resolvers><ibiblio name="central" m2compatible="true"/></resolvers></ivysettings>"""


class UnreachableError(Exception):
    """The jars are not there and can't be fetched."""


def jars() -> list[Path]:
    """The jars, fetched if they are not there yet; one process does that, others wait for it."""
    JARS.parent.mkdir(exist_ok=True)
    with open(f"{JARS}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not JARS.is_dir():
            fetch()
    return sorted(JARS.glob("*.jar"))


def fetch() -> None:
    java = f"{find_java()}/bin/java"
    organisation, name = S3_EXCLUDES.split(":")
    wanted = [each.split(":") for each in S3_PACKAGES.split(",")]
    dependencies = "".join(
        f'<dependency org="{org}" name="{module}" rev="{version}" conf="default->default"/>'
        for org, module, version in wanted
    )
    excluded = f'<exclude org="{organisation}" module="{name}"/>'
    module = '<ivy-module version="2.0"><info organisation="pillarbox" module="s3"/>'
    with tempfile.TemporaryDirectory() as place:
        Path(place, "settings.xml").write_text(SETTINGS)
        Path(place, "ivy.xml").write_text(
            f"{module}<dependencies>{dependencies}{excluded}</dependencies></ivy-module>"
        )
        (ivy,) = Path(pyspark.__file__).parent.glob("jars/ivy-*.jar")
        command = [java, "-jar", str(ivy), "-settings", f"{place}/settings.xml"]
        command += ["-ivy", f"{place}/ivy.xml", "-cache", f"{place}/cache", "-types", "jar"]
        command += ["-retrieve", f"{place}/jars/[artifact]-[revision].[ext]"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise UnreachableError(f"the jars for S3 can't be fetched:\n{done.stdout[-4000:]}")
        shutil.rmtree(JARS, ignore_errors=True)
        shutil.move(f"{place}/jars", JARS)


if __name__ == "__main__":
    sys.stdout.write(f"{len(jars())} jars in {JARS}\n")
