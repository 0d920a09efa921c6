"""`pillarbox outbox`: move messages from the outbox of a PostgreSQL database to their mailboxes."""

from __future__ import annotations

import signal
import sys
from typing import Annotated

from cyclopts import Parameter

from pillarbox.cli.options import command
from pillarbox.cli.output import OK

app = command(
    "outbox",
    "Move messages from the outbox of a PostgreSQL database to their mailboxes.",
    "Example: pillarbox outbox relay postgresql://localhost/shop",
)


@app.command(help_epilogue="Example: pillarbox outbox relay postgresql://localhost/shop")
def relay(
    url: Annotated[str, Parameter(help="The database: postgresql://user@host/database.")],
    /,
    *,
    once: Annotated[bool, Parameter(help="Move what is there now, then stop.")] = False,
) -> int:
    """Send what is in the outbox, in order within each group, until it is stopped.

    Several relays may run: for each mailbox one works, the others stand by.
    """
    from pillarbox.mailbox.postgres.relay import Relay  # noqa: PLC0415 - behind an extra

    runner = Relay(url)
    if once:
        print(f"{runner.run_once():,} sent")
        runner.close()
        return OK
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(OK))  # whatever it does, nothing is lost
    runner.run()
    return OK
