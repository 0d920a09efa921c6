"""`pillarbox postgres` and `outbox`: the schema of mailboxes on PostgreSQL, and the relay."""

from __future__ import annotations

import signal
import sys
from typing import Annotated

from cyclopts import Parameter

from pillarbox.cli import output
from pillarbox.cli.options import group
from pillarbox.cli.output import FAILED, OK

app = group(
    "postgres",
    "Create or migrate the schema that mailboxes on PostgreSQL need.",
    "Example: pillarbox postgres init postgresql://localhost/shop",
)
outbox = group(
    "outbox",
    "Move messages from the outbox of a PostgreSQL database to their mailboxes.",
    "Example: pillarbox outbox relay postgresql://localhost/shop",
)


@app.command(help_epilogue="Example: pillarbox postgres init postgresql://localhost/shop")
def init(
    url: Annotated[str, Parameter(help="The database: postgresql://user@host/database.")],
    /,
    *,
    grant: Annotated[str | None, Parameter(help="Grant this role access to the mailboxes.")] = None,
) -> int:
    """Create the schema `pillarbox`, or migrate it to this version. Safe to run again.

    A mailbox does this when it is first opened, if its role may create a schema.
    """
    from pillarbox.mailbox.postgres.options import parse_url  # noqa: PLC0415 - behind an extra
    from pillarbox.mailbox.postgres.schema import initialise  # noqa: PLC0415

    before, after = initialise(parse_url(url)[0], grant)
    if before == after:
        print(f"The schema is up to date (version {after}).")
    else:
        print(f"The schema is ready (version {after}).")
    return OK


@outbox.command(help_epilogue="Example: pillarbox outbox relay postgresql://localhost/shop")
def relay(
    url: Annotated[str, Parameter(help="The database: postgresql://user@host/database.")],
    /,
    *,
    once: Annotated[bool, Parameter(help="Send what is in the outbox now, then exit.")] = False,
) -> int:
    """Send the messages in the outbox, in order within each group, until stopped.

    You can run several relays: one is active for each mailbox, the others stand by. With
    --once, the exit code is 1 if messages were left because a mailbox did not take them.
    """
    from pillarbox.mailbox.postgres.relay import Relay  # noqa: PLC0415 - behind an extra

    runner = Relay(url)
    if once:
        with output.waiting("sending"):
            count = runner.run_once()
        runner.close()
        print(f"{count:,} sent")
        for what, problem in runner.problems.items():
            output.complain(f"{what} was left: {problem}")
        return FAILED if runner.problems else OK
    output.log_to_stderr("warning")
    output.remark("Relaying messages from the outbox; press Ctrl-C to stop.")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(OK))  # safe at any point: nothing is lost
    runner.run()
    return OK
