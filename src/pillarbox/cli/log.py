"""`pillarbox log`: look at the log of a store, check it, mend it, make it smaller."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

from cyclopts import App, Parameter
from rich.console import Console
from rich.prompt import Confirm
from rich.text import Text

from pillarbox.cli import damage, output
from pillarbox.cli.entries import line
from pillarbox.cli.output import FAILED, OK, USAGE, UsageError
from pillarbox.cli.place import Place, place_of
from pillarbox.cli.replica import Replica, replica_of
from pillarbox.cli.segments import durability_of, identity_of, list_segments
from pillarbox.cli.selection import Selection, index_of, kinds_of, seconds_of
from pillarbox.core.errors import MailboxError
from pillarbox.core.queue import Queue
from pillarbox.log import LogError, LogLockedError, LogReader, RealDisk, Report, Retention, repair
from pillarbox.log.recovery import ASIDE
from pillarbox.mailbox.compactor import read_snapshot
from pillarbox.mailbox.ledger import DurableStore

app = App(
    name="log",
    help=(
        "Look at the log of a store, check it, mend it, make it smaller.\n\n"
        "PATH is the directory of a store, of its log or of any other log, or the URL of a "
        "mailbox (file:./data/orders). All but repair and compact work beside a running writer."
    ),
    help_epilogue="Example: pillarbox log cat ./data --queue orders --follow",
    help_format="plaintext",
    default_parameter=Parameter(negative=(), show_default=False),
)

PathText = Annotated[
    str, Parameter(help="A store, its log, or a mailbox's URL (file:./data/orders).")
]
Json = Annotated[bool, Parameter(name="--json", help="Print one JSON document.")]
_LISTED_MAX = 50  # lines about lost messages; --json has all of them


@app.command(help_epilogue="Example: pillarbox log ls ./data")
def ls(path: PathText, /, *, json: Json = False) -> int:
    """List the segment files: first index, records, bytes, times."""
    place = place_of(path)
    found = list_segments(place.log, place.segment_files())
    if json:
        output.print_json({"log": place.log, "segments": [each.as_json() for each in found]})
        return OK
    right = ("first index", "records", "bytes")
    table = output.columns("segment", *right, "from (UTC)", "to (UTC)", "state", right=right)
    for each in found:
        style = "red" if each.state == "damaged" else ""
        table.add_row(
            each.name.lstrip("0").rjust(len("0.seg"), "0"),
            f"{each.first_index}",
            f"{each.records}",
            output.size(each.bytes),
            output.brief_time(each.from_ns),
            output.brief_time(each.to_ns),
            Text(each.state, style=style),
        )
    output.console().print(table if found else "the log is empty")
    return OK
