"""`pillarbox report`: what the history of a mailbox tells, as Parquet and one HTML page."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from pillarbox.cli import output
from pillarbox.cli.output import FAILED, OK
from pillarbox.cli.pipeline import QUIET
from pillarbox.extras import extra
from pillarbox.pipeline import PipelineError
from pillarbox.spark import session
from pillarbox.spark.errors import SparkError

app = App(
    name="report",
    help="Compute throughput, waiting and processing times of a mailbox from its history.",
    help_epilogue="Example: pillarbox report file:./data/orders --out ./report",
    help_format="plaintext",
    default_parameter=Parameter(negative=(), show_default=False),
)


@app.default
def report(
    url: Annotated[str, Parameter(help="A mailbox (file:./data/orders) or a store (./data).")],
    /,
    *,
    out: Annotated[Path, Parameter(help="Directory to write to; ./report if not given.")] = Path(
        "report"
    ),
    every: Annotated[str, Parameter(help="Length of a step in the charts; 1 minute.")] = "1 minute",
    start: Annotated[
        str, Parameter(name="--from", help="First index or time (UTC) of the history.")
    ] = "earliest",
    stop: Annotated[
        str, Parameter(name="--to", help="Where to end: likewise, not included.")
    ] = "latest",
    master: Annotated[str, Parameter(help="Where Spark runs; local[*] if not given.")] = "local[*]",
) -> int:
    """Write Parquet tables and one HTML page with charts."""
    try:
        with extra("spark", "a report"):
            from pillarbox.pipeline.report import (  # noqa: PLC0415 - behind an extra
                check_history,
                make_report,
                page,
            )

        check_history(url)  # before Spark is started
        spark = session(master, app_name="pillarbox report", conf=QUIET)
        made = make_report(spark, url, out, every=every, start=start, end=stop)
    except (PipelineError, SparkError, ImportError) as error:
        output.complain(" ".join(str(error).split()))
        return FAILED
    written = out / "report.html"
    written.write_text(page(made, datetime.datetime.now(datetime.UTC)), encoding="utf-8")
    output.console().print(f"{written} and {len(made.queues)} queues in {out}/*.parquet")
    return OK
