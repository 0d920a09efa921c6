"""Pillarbox on Spark: `format("pillarbox")` for DataFrames and streams, exactly once into logs.

`session()` creates a Spark session, `register(spark)` prepares your own. A step is one micro-batch,
identified by its hash (`read_step`), which is recorded in the outputs (`last_commit`). Needs
`pip install 'pillarbox[spark]'`; importing this module needs nothing.
"""

import typing

from pillarbox.spark.commits import StepCommit, last_commit, step_commits
from pillarbox.spark.enqueue import Progress, enqueue
from pillarbox.spark.errors import (
    DataLossError,
    DivergedError,
    FencedError,
    JavaNotFoundError,
    OptionError,
    SparkError,
)
from pillarbox.spark.session import register, session
from pillarbox.spark.steps import Input, Step, make_durable, read_step

if typing.TYPE_CHECKING:
    from pyspark.sql import DataFrame


def read(spark: typing.Any, url: str, *, start: int = 0, end: int | None = None) -> "DataFrame":
    """Read a typed log of a pipeline as a DataFrame: its columns, `_index` and `_time`."""
    from pillarbox.spark import native  # noqa: PLC0415 - behind an extra

    return native.read(spark, url, start=start, end=end)


__all__ = [
    "DataLossError",
    "DivergedError",
    "FencedError",
    "Input",
    "JavaNotFoundError",
    "OptionError",
    "Progress",
    "SparkError",
    "Step",
    "StepCommit",
    "enqueue",
    "last_commit",
    "make_durable",
    "read",
    "read_step",
    "register",
    "session",
    "step_commits",
]
