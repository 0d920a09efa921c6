"""`pillarbox serve`: run the broker until it is told to stop."""

from __future__ import annotations

import asyncio
import ctypes
import logging
import resource
import signal
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Final, Literal

from cyclopts import App, Parameter

from pillarbox.cli import output
from pillarbox.cli.output import FAILED, OK
from pillarbox.extras import extra

if TYPE_CHECKING:
    from pillarbox.broker import Broker, Config

_M_MMAP_THRESHOLD: Final = -3  # of malloc.h

app = App(
    name="serve",
    help=(
        "Run the broker: a durable queue server that every SQS client speaks to.\n\n"
        "Flags go before environment variables, and these before the file (pillarbox.toml in the "
        "working directory, or --config). SIGTERM stops it gracefully; SIGHUP renews certificates."
    ),
    help_epilogue="Example: pillarbox serve --port 9324 --data ./data",
    help_format="plaintext",
    default_parameter=Parameter(negative=(), show_default=False, show_env_var=True),
)


def _flag(help_text: str, variable: str) -> Parameter:
    return Parameter(help=help_text, env_var=f"PILLARBOX_{variable}")


@app.default
def serve(
    *,
    host: Annotated[str | None, _flag("Address to listen at (127.0.0.1).", "HOST")] = None,
    port: Annotated[int | None, _flag("Port to listen at (9324; 0: any).", "PORT")] = None,
    data: Annotated[
        str | None, _flag("Directory of the store (./data); none: keep nothing.", "DATA")
    ] = None,
    durability: Annotated[
        Literal["fsync", "os", "memory"] | None,
        _flag("What confirmed means (fsync): on disk, safe from kill -9, neither.", "DURABILITY"),
    ] = None,
    config: Annotated[
        str | None, _flag("Configuration file (pillarbox.toml, if there is one).", "CONFIG")
    ] = None,
    tls_certificate: Annotated[
        str | None, _flag("File of the certificate chain, to serve https.", "TLS_CERTIFICATE")
    ] = None,
    tls_key: Annotated[str | None, _flag("File of its private key.", "TLS_KEY")] = None,
    key: Annotated[
        str | None,
        _flag(
            "A key that may do everything (id:secret); safer as a variable than as a flag.",
            "KEY",
        ),
    ] = None,
    anonymous: Annotated[
        bool | None, _flag("Without keys, serve other machines as well.", "ANONYMOUS")
    ] = None,
    allowed_hosts: Annotated[
        str | None,
        _flag("Without keys, names by which clients may know it (a.example,b).", "ALLOWED_HOSTS"),
    ] = None,
    pipelines: Annotated[
        str | None, _flag("Directory of pipelines that the dashboard shows.", "PIPELINES")
    ] = None,
    read_only: Annotated[
        bool, _flag("The dashboard shows, and changes nothing.", "READ_ONLY")
    ] = False,
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"], _flag("Notices on stderr.", "LOG_LEVEL")
    ] = "warning",
    json: Annotated[bool, _flag("Tell where it is as JSON.", "JSON")] = False,
) -> int:
    """Run the broker until SIGTERM or Ctrl-C."""
    with extra("broker", "the broker"):
        import uvloop  # noqa: PLC0415 - behind an extra

        from pillarbox.broker.config import load  # noqa: PLC0415 - behind an extra

    flags = {
        "host": host,
        "port": port,
        "data": data,
        "durability": durability,
        "tls_certificate": tls_certificate,
        "tls_key": tls_key,
        "anonymous": anonymous,
        "allowed_hosts": allowed_hosts.replace(",", " ").split() if allowed_hosts else None,
    }
    chosen = load(config, flags, key)
    _log_to_stderr(log_level)
    _allow_many_connections()
    _give_memory_back()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_run(chosen, pipelines, read_only=read_only, json=json))


async def _run(config: Config, pipelines: str | None, *, read_only: bool, json: bool) -> int:
    from pillarbox.broker import Broker  # noqa: PLC0415 - behind an extra
    from pillarbox.dashboard import Pipelines, mount  # noqa: PLC0415 - behind an extra

    broker = Broker(config)
    folders = [pipelines] if pipelines is not None else []
    mount(broker, read_only=read_only, pipelines=Pipelines(folders))
    loop = asyncio.get_running_loop()
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    if broker.tls is not None:
        loop.add_signal_handler(signal.SIGHUP, broker.tls.reload)
    try:
        await broker.start()
    except OSError as error:
        await broker.stop()
        output.complain(f"can't listen at {config.host}:{config.port}: {error}")
        return FAILED
    _tell(broker, json=json)
    await stopping.wait()
    await broker.stop()
    return OK


def _tell(broker: Broker, *, json: bool) -> None:
    config = broker.config
    known = {
        "url": broker.url,
        "data": config.data,
        "durability": config.durability if config.data else "memory",
        "dashboard": f"{broker.url}/",
        "keys": len(config.keys),
    }
    if json:
        output.print_json(known)
    else:
        where = f"{config.data} ({config.durability})" if config.data else "in memory only"
        who = f"{len(config.keys)} keys" if config.keys else "anyone who can connect"
        rows = [
            ("listening", broker.url),
            ("data", where),
            ("dashboard", str(known["dashboard"])),
            ("open to", who),
        ]
        output.console().print(output.facts(rows))
    sys.stdout.flush()


def _log_to_stderr(level: str) -> None:
    logger = logging.getLogger("pillarbox")
    logger.setLevel(level.upper())
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s level=%(levelname)s %(message)s"))
    logger.addHandler(handler)


def _allow_many_connections() -> None:
    """Each parked poll is a file descriptor."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _give_memory_back() -> None:
    """Return large buffers to the system when they are freed.

    By default glibc raises its threshold for doing so to the largest size that was freed (up to
    32 MB), and what is smaller stays in the heap. A fixed threshold turns that off.
    """
    with suppress(OSError, AttributeError):  # another C library
        ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, 128 << 10)
