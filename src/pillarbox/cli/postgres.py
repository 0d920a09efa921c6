"""`pillarbox postgres`: the schema that mailboxes on PostgreSQL need."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from pillarbox.cli.options import command
from pillarbox.cli.output import OK

app = command(
    "postgres",
    "Create or migrate the schema that mailboxes on PostgreSQL need.",
    "Example: pillarbox postgres init postgresql://localhost/shop",
)


@app.command(help_epilogue="Example: pillarbox postgres init postgresql://localhost/shop")
def init(
    url: Annotated[str, Parameter(help="The database: postgresql://user@host/database.")],
    /,
    *,
    grant: Annotated[
        str | None, Parameter(help="Let this role use the mailboxes in the database.")
    ] = None,
) -> int:
    """Create the schema `pillarbox`, or bring it to this version; safe to repeat.

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
