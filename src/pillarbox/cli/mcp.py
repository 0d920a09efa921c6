"""`pillarbox mcp`: serve mailboxes to agents by the Model Context Protocol."""

from __future__ import annotations

from importlib import import_module
from typing import Annotated

from cyclopts import App, Parameter

from pillarbox.cli.output import OK, UsageError
from pillarbox.extras import MissingExtraError

app = App(
    name="mcp",
    help=(
        "Serve mailboxes to agents by the Model Context Protocol, over stdin and stdout.\n\n"
        "The tools are send, receive, acknowledge, peek and stats. A mailbox on disk (file:) can "
        "be open in one process at a time: let a broker own it if others use it meanwhile."
    ),
    help_epilogue="Example: pillarbox mcp file:./data/orders http://localhost:9324/jobs",
    help_format="plaintext",
)


@app.default
def serve(
    *urls: Annotated[str, Parameter(help="Mailboxes: file:./data/orders, redis://host/name...")],
) -> int:
    """Serve these mailboxes until standard input ends."""
    if not urls:
        raise UsageError("Name at least one mailbox by its URL.")
    try:
        server = import_module("pillarbox.bus.mcp_server")
    except MissingExtraError as error:
        raise UsageError(f"{error}.") from error
    try:
        server.build_server(urls).run()
    except BaseExceptionGroup as group:  # of the tasks that the server consists of
        raise _first(group) from group
    return OK


def _first(error: BaseException) -> BaseException:
    """What went wrong, without the groups around it."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
