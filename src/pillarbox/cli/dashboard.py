"""`pillarbox dashboard URL...`: the dashboard for mailboxes without a Pillarbox broker."""

from __future__ import annotations

import asyncio
import signal
import sys
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from pillarbox.cli import output
from pillarbox.cli.backends import open_existing
from pillarbox.cli.options import PORT_MAX, app
from pillarbox.cli.output import OK, UsageError
from pillarbox.core.limits import whole

if TYPE_CHECKING:
    from pillarbox.dashboard import UrlMailboxes


@app.command(
    help_epilogue="Example: pillarbox dashboard redis://localhost/orders redis://localhost/mail"
)
def dashboard(
    *urls: Annotated[str, Parameter(help="URLs of mailboxes.")],
    port: Annotated[int, Parameter(help="Port; 0 for any free port.")] = 9325,
    read_only: Annotated[bool, Parameter(help="Disable all changes.")] = False,
    json: Annotated[bool, Parameter(name="--json", help="Print the address as JSON.")] = False,
) -> int:
    """Serve the dashboard for mailboxes on Redis, PostgreSQL, Amazon SQS or disk.

    A broker serves its own dashboard at its root. This one has no access keys, so it listens on
    127.0.0.1 only. A store on disk is opened for writing, so no other process may have it open.
    """
    from pillarbox.dashboard import UrlMailboxes  # noqa: PLC0415 - behind an extra

    whole("port", port, 0, PORT_MAX)
    if not urls:
        raise UsageError("give the URL of at least one mailbox.")
    names: dict[str, str] = {}
    for url in urls:
        with open_existing(url) as box:  # so that an error names the wrong URL
            if names.setdefault(box.name, url) != url:
                raise UsageError(
                    f"two mailboxes are named {box.name!r}; start a dashboard for each."
                )
    boxes = UrlMailboxes(urls)
    try:
        return asyncio.run(_serve(boxes, port, read_only=read_only, json=json))
    finally:
        boxes.close()


async def _serve(boxes: UrlMailboxes, port: int, *, read_only: bool, json: bool) -> int:
    from pillarbox.broker.cross_origin import (  # noqa: PLC0415 - behind an extra
        CrossOriginProtection,
    )
    from pillarbox.broker.http import Routes  # noqa: PLC0415 - behind an extra
    from pillarbox.broker.http_server import HttpServer  # noqa: PLC0415 - behind an extra
    from pillarbox.broker.sqs_json import refusal  # noqa: PLC0415 - behind an extra
    from pillarbox.dashboard import Dashboard  # noqa: PLC0415 - behind an extra

    routes = Routes(Dashboard(boxes, read_only=read_only).handle)
    protection = CrossOriginProtection("127.0.0.1")
    server = HttpServer(routes.handle, refusal, protection)
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    try:
        bound = await server.listen("127.0.0.1", port, None)
    except OSError as error:
        return output.refuse_address(f"127.0.0.1:{port}", error, choose="--port")
    url = f"http://127.0.0.1:{bound}/"
    rows = [("dashboard", url), ("shows", boxes.title)]
    output.show({"dashboard": url}, output.facts(rows), json=json)
    sys.stdout.flush()
    await stopping.wait()
    await server.close(2)
    return OK
