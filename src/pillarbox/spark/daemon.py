"""What Spark forks its Python workers from: its own daemon, with the data source at hand.

Spark starts a Python process for each plan, each commit and each task, and would have all of
them import the same modules. `session` names this module to Spark where it can be sure that
workers find it.
"""

from __future__ import annotations

import gc
import runpy

import pillarbox.spark.source  # noqa: F401 - imported once, for all that are forked


def main() -> None:
    """Become Spark's daemon."""
    # Workers collect garbage after each task; what was imported here is none.
    gc.freeze()
    runpy.run_module("pyspark.daemon", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
