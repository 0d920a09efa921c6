"""`pillarbox serve`: run the broker until SIGTERM or Ctrl-C."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import resource
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from cyclopts import Parameter

from pillarbox.cli import output
from pillarbox.cli.options import app
from pillarbox.cli.output import FAILED, OK
from pillarbox.core.errors import MailboxConnectionError
from pillarbox.extras import extra
from pillarbox.mailbox.url import without_password

if TYPE_CHECKING:
    from pillarbox.broker import Broker, Config

_COLLECT_SECONDS: Final = 60.0
_NEVER: Final = 1_000_000_000
_M_MMAP_THRESHOLD: Final = -3  # from malloc.h
_SWITCH_SECONDS: Final = 0.000_02  # how long another thread may keep the event loop waiting


def _flag(help_text: str, variable: str) -> Parameter:
    return Parameter(help=help_text, env_var=f"PILLARBOX_{variable}")


@app.command(help_epilogue="Example: pillarbox serve --port 9324 --data ./data")
def serve(
    *,
    host: Annotated[str | None, _flag("Address to listen on (default: 127.0.0.1).", "HOST")] = None,
    port: Annotated[int | None, _flag("Port (default: 9324; 0: any free port).", "PORT")] = None,
    data: Annotated[
        str | None, _flag("Directory of the store, or none (default: ./data).", "DATA")
    ] = None,
    store: Annotated[
        str | None,
        _flag("URL of a store to share with other brokers, instead of a directory.", "STORE"),
    ] = None,
    durability: Annotated[
        Literal["fsync", "os", "memory"] | None,
        _flag("Confirm when on disk, when in the OS, or at once (default: fsync).", "DURABILITY"),
    ] = None,
    config: Annotated[
        str | None, _flag("Configuration file (default: ./pillarbox.toml, if any).", "CONFIG")
    ] = None,
    tls_certificate: Annotated[
        str | None, _flag("Certificate chain file, for HTTPS.", "TLS_CERTIFICATE")
    ] = None,
    tls_key: Annotated[str | None, _flag("Private key file.", "TLS_KEY")] = None,
    key: Annotated[
        str | None, _flag("Access key with full access (id:secret); safer in the variable.", "KEY")
    ] = None,
    anonymous: Annotated[
        bool | None, _flag("Serve other machines without access keys.", "ANONYMOUS")
    ] = None,
    allowed_hosts: Annotated[
        str | None,
        _flag("Host names to accept if there are no keys (a.example,b).", "ALLOWED_HOSTS"),
    ] = None,
    audit_log: Annotated[
        str | None, _flag("File for administrative actions, as JSON lines.", "AUDIT_LOG")
    ] = None,
    pipelines: Annotated[
        str | None, _flag("Pipelines directory for the dashboard.", "PIPELINES")
    ] = None,
    read_only: Annotated[bool, _flag("Make the dashboard read-only.", "READ_ONLY")] = False,
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"],
        _flag("Log level.", "LOG_LEVEL"),
    ] = "warning",
    json: Annotated[bool, _flag("Print the address as JSON.", "JSON")] = False,
) -> int:
    """Run the broker: a durable queue server for every SQS client.

    Flags override environment variables, which override the configuration file. SIGTERM stops
    the broker gracefully; SIGHUP reloads the certificate and the keys and reopens the audit
    log.
    """
    with extra("broker", "the broker"):
        import uvloop  # noqa: PLC0415 - behind an extra

        from pillarbox.broker.config import load  # noqa: PLC0415 - behind an extra

    flags = {
        "host": host,
        "port": port,
        "data": data,
        "store": store,
        "durability": durability,
        "tls_certificate": tls_certificate,
        "tls_key": tls_key,
        "anonymous": anonymous,
        "audit_log": audit_log,
        "allowed_hosts": allowed_hosts.replace(",", " ").split() if allowed_hosts else None,
    }
    read_config = partial(load, config, flags, key)
    chosen = read_config()
    output.log_to_stderr(log_level)
    _allow_many_connections()
    _give_memory_back()
    sys.setswitchinterval(_SWITCH_SECONDS)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_run(chosen, read_config, pipelines, read_only=read_only, json=json))


async def _run(
    config: Config,
    read_config: Callable[[], Config],
    pipelines: str | None,
    *,
    read_only: bool,
    json: bool,
) -> int:
    from pillarbox.broker import Broker  # noqa: PLC0415 - behind an extra
    from pillarbox.dashboard import Pipelines, mount  # noqa: PLC0415 - behind an extra

    broker = Broker(config)
    folders = [pipelines] if pipelines is not None else []
    dashboard = mount(broker, read_only=read_only, pipelines=Pipelines(folders))
    loop = asyncio.get_running_loop()
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)

    loop.add_signal_handler(signal.SIGHUP, broker.reload, read_config)
    store = without_password(config.store) if config.store is not None else "its store"
    try:
        with output.waiting(f"waiting for {store}"):
            await broker.start()
    except OSError as error:
        await broker.stop()
        address = f"{config.host}:{config.port}"
        return output.refuse_address(address, error, choose="--host or --port")
    except MailboxConnectionError as error:
        output.complain(f"the store {store} can't be used: {error}")
        return FAILED
    dashboard.start()  # records the history of the queues even while no one views it
    gc.freeze()  # exempt objects loaded at start-up from every collection
    gc.set_threshold(*gc.get_threshold()[:2], _NEVER)
    collecting = asyncio.create_task(_collect_garbage())
    _announce(broker, json=json)
    await stopping.wait()
    collecting.cancel()
    await broker.stop()
    return OK


async def _collect_garbage() -> None:
    """Run full garbage collections, for at most a thousandth of the time.

    A full collection visits every message in memory and blocks all requests. By default, Python
    would run several per second while a queue grows, and find hardly any garbage.
    """
    took = 0.0
    while True:
        await asyncio.sleep(max(_COLLECT_SECONDS, 1_000 * took))
        started = time.perf_counter()
        gc.collect()
        took = time.perf_counter() - started


def _announce(broker: Broker, *, json: bool) -> None:
    config = broker.config
    who = output.count(len(config.keys), "key") if config.keys else "anyone who can connect"
    rows = [("listening", broker.url)]
    document: dict[str, Any] = {"url": broker.url, "keys": len(config.keys)}
    if config.store is not None:
        document["store"] = without_password(config.store)
        rows += [("store", document["store"])]
    else:
        document["data"] = config.data
        document["durability"] = config.durability if config.data else "memory"
        where = f"{config.data} ({config.durability})" if config.data else "in memory only"
        rows += [("data", where)]
    document["dashboard"] = f"{broker.url}/"
    rows += [("dashboard", document["dashboard"]), ("open to", who)]
    output.show(document, output.facts(rows), json=json)
    sys.stdout.flush()


def _allow_many_connections() -> None:
    """Raise the limit of open files: each long poll needs a file descriptor."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _give_memory_back() -> None:
    """Return large buffers to the system when they are freed.

    By default, glibc raises its mmap threshold to the largest size freed so far (up to 32 MB), and
    keeps smaller buffers in the heap. A fixed threshold disables that.
    """
    with suppress(OSError, AttributeError):  # another C library
        ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, 128 << 10)
