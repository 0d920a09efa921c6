"""Fetch the jars with which Spark reaches S3 into .venv/s3-jars.

`python -m tools.s3_jars`: the tests need them, on a new machine once.
"""

from __future__ import annotations

import sys
from pathlib import Path

from pillarbox.spark.remote_store import S3_EXCLUDES, S3_PACKAGES
from tools.ivy import jars_in


def jars() -> list[Path]:
    return jars_in("s3-jars", S3_PACKAGES, excludes=S3_EXCLUDES)


if __name__ == "__main__":
    sys.stdout.write(f"{len(jars())} jars for S3\n")
