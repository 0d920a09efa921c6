"""Fetch HDFS itself, a small cluster in one process, into .venv/hdfs-jars.

`python -m tools.hdfs_jars`: the tests need it, on a new machine once. The rest of Hadoop is in
PySpark.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pyspark

from tools.ivy import jars_in

_PYSPARK_JARS = Path(pyspark.__file__).parent / "jars"
#: It asserts something about its directory.
_JUNIT = (
    "org.junit.jupiter:junit-jupiter-api:5.13.4,org.junit.platform:junit-platform-commons:1.13.4"
)


def jars() -> list[Path]:
    """The class path of `org.apache.hadoop.test.MiniDFSClusterManager`."""
    (client,) = _PYSPARK_JARS.glob("hadoop-client-api-*.jar")
    version = client.stem.removeprefix("hadoop-client-api-")
    packages = f"org.apache.hadoop:hadoop-client-minicluster:{version},{_JUNIT}"
    names = ("hadoop-client-*", "slf4j-api-*", "jcl-over-slf4j-*", "log4j-*")
    own = [jar for name in names for jar in sorted(_PYSPARK_JARS.glob(f"{name}.jar"))]
    return [*jars_in("hdfs-jars", packages, transitive=False), *own]


if __name__ == "__main__":
    sys.stdout.write(f"{len(jars())} jars for HDFS\n")
