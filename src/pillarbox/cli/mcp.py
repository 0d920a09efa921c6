"""`pillarbox mcp`: serve mailboxes to agents over the Model Context Protocol."""

from __future__ import annotations

import signal
import sys
from typing import Annotated

from cyclopts import Parameter

from pillarbox.cli.options import app
from pillarbox.cli.output import OK, UsageError, remark


@app.command(help_epilogue="Example: pillarbox mcp file:./data/orders http://localhost:9324/jobs")
def mcp(
    *urls: Annotated[
        str, Parameter(help="URLs of mailboxes: file:./data/orders, redis://host/name.")
    ],
) -> int:
    """Serve mailboxes to agents over the Model Context Protocol, on stdin and stdout.

    The tools are send, receive, acknowledge, peek and stats. Only one process can open a
    mailbox on disk (file:); run a broker to share it.
    """
    if not urls:
        raise UsageError("give the URL of at least one mailbox.")
    from pillarbox.bus.mcp_server import build_server  # noqa: PLC0415 - behind an extra

    server = build_server(urls)
    if sys.stdin.isatty():
        remark("Serving MCP on stdin and stdout, for an agent; press Ctrl-C to stop.")
    # A thread of the server is blocked reading stdin, and only the default action interrupts it.
    # Nothing is lost: confirmed operations survive a kill.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        server.run()
    except BaseExceptionGroup as group:  # the server runs in nested task groups
        first: BaseException = group
        while isinstance(first, BaseExceptionGroup):
            first = first.exceptions[0]
        raise first from group
    return OK
