"""`pillarbox report`: statistics from the history of a mailbox, as Parquet and HTML."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from pillarbox.cli import output
from pillarbox.cli.options import app
from pillarbox.cli.output import OK
from pillarbox.cli.pipeline import QUIET
from pillarbox.extras import extra
from pillarbox.mailbox.url import without_password
from pillarbox.spark import session
from pillarbox.spark.options import check_position


@app.command(help_epilogue="Example: pillarbox report file:./data/orders --out ./report")
def report(
    url: Annotated[str, Parameter(help="A mailbox (file:./data/orders) or a store (./data).")],
    /,
    *,
    out: Annotated[Path, Parameter(help="Output directory.")] = Path("report"),
    every: Annotated[str, Parameter(help="Length of an interval in the charts.")] = "1 minute",
    start: Annotated[str, Parameter(name="--from", help="First index or time (UTC).")] = "earliest",
    stop: Annotated[
        str, Parameter(name="--to", help="End, exclusive, in the same forms.")
    ] = "latest",
    master: Annotated[str, Parameter(help="Spark master.")] = "local[*]",
) -> int:
    """Report throughput, waiting times and processing times of a mailbox from its history."""
    with extra("spark", "a report"):
        from pillarbox.pipeline.report import (  # noqa: PLC0415 - behind an extra
            check_history,
            make_report,
            page,
        )

    for option, text in (("--from", start), ("--to", stop)):
        check_position(option, text)
    check_history(url, every)  # before Spark is started
    with output.waiting("starting Spark"):
        spark = session(master, app_name="pillarbox report", conf=QUIET)
    with output.waiting(f"reading the history of {without_password(url)}"):
        result = make_report(spark, url, out, every=every, start=start, end=stop)
    written = out / "report.html"
    written.write_text(page(result, datetime.datetime.now(datetime.UTC)), encoding="utf-8")
    output.console().print(f"wrote {written} and {out}/*.parquet")
    return OK
