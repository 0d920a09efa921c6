"""`python tools/reference.py`: write the pages of the reference that the code itself knows.

Configuration, limits, errors and the command line are read from the code, so that they can't
say anything else. With `--check` nothing is written, and the exit code tells whether all are
up to date.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
from cyclopts import App

import pillarbox.bus
import pillarbox.cli
import pillarbox.pipeline
import pillarbox.spark.errors
import pillarbox.worker
from pillarbox.broker import errors as wire
from pillarbox.broker import limits as broker_limits
from pillarbox.broker.config import Config
from pillarbox.cli.serve import serve
from pillarbox.core import limits as core_limits
from pillarbox.core.errors import MailboxError
from pillarbox.log import LogError
from pillarbox.mailbox.broker import errors as _broker_client  # so that its errors are known
from pillarbox.pipeline import PipelineError
from pillarbox.spark.errors import SparkError

assert _broker_client

ROOT = Path(__file__).parents[1]
REFERENCE = ROOT / "docs" / "reference"
MADE = "<!-- Made by tools/reference.py from the code; edit that. -->\n\n"

MEANING = {
    "host": "address to listen at; other machines only with keys or `anonymous`",
    "port": "port to listen at; 0 takes any",
    "data": "directory of the store; `none` keeps everything in memory",
    "durability": "what confirmed means: on disk, safe from `kill -9`, or neither",
    "account": "the account in the URLs and ARNs of queues",
    "region": "the region in ARNs and signatures",
    "keys": "the clients' keys: `id`, `secret`, `queues`, `actions`",
    "anonymous": "without keys, serve others than this machine",
    "allowed_hosts": "without keys, names by which clients may know it, or patterns of them",
    "tls_certificate": "file of the certificate chain, to serve https",
    "tls_key": "file of its private key",
    "clock_skew_seconds": "how old, or how far ahead, a signature may be",
    "purge_interval_seconds": "the time between two purges of a queue, as SQS has it",
    "recreate_after_seconds": "the time before a deleted queue may be made again, as SQS has it",
    "max_deliveries": "of queues that were not made through SQS's own API; 0: no dead letters",
    "in_flight_max": "messages in flight in one queue",
    "idle_seconds": "a connection that says nothing for so long is closed",
    "stop_seconds": "the time that requests under way have when the broker stops",
    "connections_max": "open connections",
    "request_buffer_bytes_max": "memory for requests that are still arriving, all together",
    "queues": "queues that exist from the start: `attributes`, `tags`, `priority`",
}


def configuration() -> str:
    flags = {name.strip("_") for name in serve.__annotations__} & set(Config.__struct_fields__)
    rows = []
    for field in msgspec.structs.fields(Config):
        flag = field.name in flags
        made = field.default is msgspec.NODEFAULT
        default = field.default_factory() if made else field.default
        rows.append(
            (
                f"`{field.name}`",
                f"`{_toml(default)}`",
                f"`--{field.name.replace('_', '-')}`" if flag else "",
                f"`PILLARBOX_{field.name.upper()}`" if flag else "",
                MEANING[field.name],
            )
        )
    table = _table(("in pillarbox.toml", "default", "flag", "environment", "what it is"), rows)
    return f"""# Configuration

{MADE}`pillarbox serve` reads `pillarbox.toml` in its working directory, or the file that `--config`
(`PILLARBOX_CONFIG`) names. A flag goes before its environment variable, and that before the file. A
setting that is unknown or out of range stops the broker before it listens.

{table}
`PILLARBOX_KEY=id:secret` adds one key that may do everything to those of the file; `--key` does so
too, but other users of the machine can see a flag.
The dashboard has `--read-only` (`PILLARBOX_READ_ONLY`) and `--pipelines` (`PILLARBOX_PIPELINES`),
logging has `--log-level` (`PILLARBOX_LOG_LEVEL`). Mailboxes themselves are configured where they
are opened: see [What each backend can do](backends.md).
"""


def limits() -> str:
    return f"""# Limits

{MADE}Every input has a limit, and a limit has a name. What is beyond one is refused with an
`InvalidParameterError` that tells the range, before anything is changed. SQS and Redis have
narrower ones in places: [What each backend can do](backends.md).

## Of a mailbox

{_constants(core_limits)}
## Of the broker's connections

{_constants(broker_limits)}"""


def errors() -> str:
    parts = [
        ("Of a mailbox", MailboxError),
        ("Of a log", LogError),
        ("Of a pipeline", PipelineError),
        ("Of Spark", SparkError),
    ]
    text = f"""# Errors

{MADE}An error says what happened, to which queue, and what to do next. Retryable means that the
same call may succeed later.
"""
    for title, root in parts:
        rows = [
            (f"`{kind.__name__}`", _first_line(kind), *_on_the_wire(kind)) for kind in _tree(root)
        ]
        columns = ["error", "means", "SQS code", "HTTP", "retryable"]
        shown = len(columns) if root is MailboxError else 2  # the others don't go over a wire
        text += f"\n## {title}\n\n" + _table(columns[:shown], [row[:shown] for row in rows])
    rows = [(f"`{name}`", f"`{kind.code}`", str(kind.status)) for name, kind in wire.KINDS.items()]
    return text + (
        "\n## On the broker's SQS wire\n\nAs Amazon SQS names them, in the JSON protocol and in "
        "the query protocol.\n\n" + _table(("JSON", "query", "HTTP"), rows)
    )


def command_line() -> str:
    text = f"""# Command line

{MADE}Nouns first, then verbs: `pillarbox queue ls`, `pillarbox log verify`; what one does all day
has no noun (`send`, `receive`, `peek`, `tail`, `top`). Results go to standard output, all else
to standard error. `--json` prints JSON, one document in a line.

| exit code | means |
|---|---|
| 0 | done |
| 1 | it failed, or damage was found, or nothing came |
| 2 | the command line is wrong |
| 130 | Ctrl-C |

Colours are off where output is no terminal, and with `NO_COLOR=1`. Completion of commands and
flags:

| shell | |
|---|---|
| bash | `pillarbox completion bash > ~/.local/share/bash-completion/completions/pillarbox` |
| zsh | `pillarbox completion zsh > ~/.zfunc/_pillarbox`, with `~/.zfunc` in `$fpath` |
| fish | `pillarbox completion fish > ~/.config/fish/completions/pillarbox.fish` |
"""
    for path in _commands(pillarbox.cli.app):
        words = ["pillarbox", *path]
        text += f"\n## {' '.join(words)}\n\n```text\n{_help(path)}\n```\n"
    return text


def _help(path: tuple[str, ...]) -> str:
    os.environ["COLUMNS"] = "100"
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown):
        pillarbox.cli.run([*path, "--help"])
    return "\n".join(line.rstrip() for line in shown.getvalue().rstrip().splitlines())


def _commands(of: App, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    yield path
    for name in of:
        if not name.startswith("-"):
            yield from _commands(of[name], (*path, name))


def _constants(module: ModuleType) -> str:
    """Its public constants, with the comments beside them, in the order of the source."""
    source = Path(module.__file__ or "").read_text("utf-8")
    line = re.compile(r"^([A-Z][A-Z_]+)(?:: Final)? = [^#\n]+?(?:  # (.*))?$", re.MULTILINE)
    found = line.findall(source)
    rows = []
    for name, comment in found:
        if name == "SECOND_NS":  # a unit, not a limit
            continue
        value = getattr(module, name)
        text = f"{value:,}" if isinstance(value, int | float) else f"`{value}`"
        rows.append((f"`{name}`", text, comment))
    return _table(("name", "value", ""), rows)


def _tree(root: type[Exception]) -> Iterator[type[Exception]]:
    yield root
    for kind in root.__subclasses__():
        if kind.__module__.startswith("pillarbox."):
            yield from _tree(kind)


def _first_line(kind: type) -> str:
    return (kind.__doc__ or "").strip().splitlines()[0]


def _on_the_wire(kind: Any) -> tuple[str, str, str]:
    if not issubclass(kind, MailboxError):
        return "", "", ""
    return f"`{kind.sqs_code}`", str(kind.http_status), "yes" if kind.retryable else ""


def _toml(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return f'"{value}"'
    return "[]" if value == () else str(value)


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    columns = list(head)
    lines = [columns, ["---"] * len(columns), *rows]
    return "".join("| " + " | ".join(map(_cell, row)) + " |\n" for row in lines)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


PAGES = {
    "configuration.md": configuration,
    "limits.md": limits,
    "errors.md": errors,
    "command-line.md": command_line,
}


def main(check: bool) -> int:
    stale = []
    for name, made in PAGES.items():
        path, text = REFERENCE / name, made()
        if not path.exists() or path.read_text("utf-8") != text:
            stale.append(path)
            if not check:
                path.write_text(text, "utf-8")
    for path in stale:
        print(f"{path.relative_to(ROOT)} {'is out of date' if check else 'written'}")
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main("--check" in sys.argv[1:]))
