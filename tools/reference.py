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

import pillarbox
import pillarbox.backup
import pillarbox.bus
import pillarbox.cli
import pillarbox.log
import pillarbox.mailbox.broker
import pillarbox.mailbox.postgres
import pillarbox.mailbox.redis
import pillarbox.mailbox.sqs
import pillarbox.pipeline.errors
import pillarbox.spark.errors
import pillarbox.worker
from pillarbox.broker import errors as wire
from pillarbox.broker import limits as broker_limits
from pillarbox.broker.config import Config
from pillarbox.cli.serve import serve
from pillarbox.core import limits as core_limits
from pillarbox.core.errors import MailboxError
from pillarbox.log import LogError
from pillarbox.pipeline import PipelineError
from pillarbox.spark.errors import SparkError

ROOT = Path(__file__).parents[1]
REFERENCE = ROOT / "docs" / "reference"
MADE = "<!-- Made by tools/reference.py from the code; edit that. -->\n\n"

MEANING = {
    "host": "address to listen on; other than loopback only with keys or `anonymous`",
    "port": "port to listen on; 0: any free port",
    "data": "directory of the store; `none` keeps everything in memory",
    "store": "URL of a store that brokers [share](../how-to/share-a-store.md), instead of `data`",
    "durability": "what confirmed means: on disk, safe from `kill -9`, or neither",
    "account": "account of keys without one of their own, in queue URLs and ARNs",
    "region": "region of mailboxes and of unsigned requests",
    "keys": "access keys of clients: `id`, `secret`, `queues`, `actions`",
    "anonymous": "without keys, accept clients on other machines",
    "allowed_hosts": "without keys, host names (or patterns) that clients may use",
    "audit_log": "file for administrative actions, one JSON object per line",
    "tls_certificate": "certificate chain file, for HTTPS",
    "tls_key": "private key file",
    "clock_skew_seconds": "maximum difference between the time of a signature and the clock",
    "purge_interval_seconds": "minimum time between two purges of a queue, as in SQS",
    "recreate_after_seconds": "minimum time before a deleted queue can be created again, as in SQS",
    "max_deliveries": "default for queues not created through the SQS API; 0: never dead-letter",
    "in_flight_max": "maximum number of messages in flight per queue",
    "idle_seconds": "close a connection after this long without a request",
    "stop_seconds": "how long running requests may take when the broker stops",
    "connections_max": "maximum number of open connections",
    "request_buffer_bytes_max": "memory for requests that are still being received, in total",
    "queues": "queues to create at start: `attributes`, `tags`, `priority`",
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
    table = _table(("in pillarbox.toml", "default", "flag", "environment", "meaning"), rows)
    return f"""# Configuration

{MADE}`pillarbox serve` reads `pillarbox.toml` in its working directory, or the file that `--config`
(`PILLARBOX_CONFIG`) names. A flag overrides its environment variable, which overrides the file. If
a setting is unknown or out of range, the broker does not start.

{table}
`PILLARBOX_KEY=id:secret` adds one key with full access to those in the file. `--key` does the same,
but other users of the machine can see the command line.
The dashboard has `--read-only` (`PILLARBOX_READ_ONLY`) and `--pipelines` (`PILLARBOX_PIPELINES`),
logging has `--log-level` (`PILLARBOX_LOG_LEVEL`). Mailboxes are configured when they are opened:
see [What each backend can do](backends.md).
"""


def limits() -> str:
    return f"""# Limits

{MADE}Every input has a limit, and every limit has a name. A value out of range raises an
`InvalidParameterError` that states the range, before anything is changed. Some limits of Amazon
SQS are lower: [What each backend can do](backends.md).

## Mailboxes

{_constants(core_limits)}
## Connections to the broker

{_constants(broker_limits)}"""


# Where a program imports an error from: the first of these that has it.
PUBLIC = (
    pillarbox,
    pillarbox.bus,
    pillarbox.worker,
    pillarbox.backup,
    pillarbox.mailbox.broker,
    pillarbox.mailbox.redis,
    pillarbox.mailbox.postgres,
    pillarbox.mailbox.sqs,
    pillarbox.log,
    pillarbox.pipeline,
    pillarbox.pipeline.errors,
    pillarbox.spark,
    pillarbox.spark.errors,
)


def errors() -> str:
    parts = [
        ("Mailboxes", _tree(MailboxError)),
        ("Workers", [kind for kind in vars(pillarbox.worker).values() if _is_error(kind)]),
        ("Logs", _tree(LogError)),
        ("Pipelines", _tree(PipelineError)),
        ("Spark", _tree(SparkError)),
    ]
    text = f"""# Errors

{MADE}An error says what happened, to which queue, and what to do next. Retryable means that the
same call may succeed later.
"""
    for title, kinds in parts:
        rows = [
            (f"`{kind.__name__}`", _first_line(kind), f"`{home.__name__}`", _retryable(kind))
            for kind in kinds
            if (home := _home(kind)) is not None
        ]
        columns = ["error", "meaning", "import from", "retryable"]
        shown = len(columns) if title == "Mailboxes" else 3
        text += f"\n## {title}\n\n" + _table(columns[:shown], [row[:shown] for row in rows])
    codes = [(f"`{name}`", f"`{kind.code}`", str(kind.status)) for name, kind in wire.KINDS.items()]
    return text + (
        "\n## SQS error codes of the broker\n\nThe names that Amazon SQS uses in the JSON "
        "protocol and in the query protocol.\n\n" + _table(("JSON", "query", "HTTP"), codes)
    )


def _home(kind: type) -> ModuleType | None:
    """The public module of an error; None if it never reaches a program."""
    homes = (module for module in PUBLIC if getattr(module, kind.__name__, None) is kind)
    return next(homes, None)


def _is_error(kind: Any) -> bool:
    return (
        isinstance(kind, type) and issubclass(kind, Exception) and kind.__name__.endswith("Error")
    )


def command_line() -> str:
    text = f"""# Command line

{MADE}A command is a noun and a verb: `pillarbox queue ls`, `pillarbox log verify`. The most
frequent ones have no noun (`send`, `receive`, `peek`, `tail`, `top`). Results go to standard
output, everything else to standard error. `--json` prints JSON, one document per line. Commands
that delete ask for confirmation; without a terminal they require `--yes`. Only `send` and `queue
create` create a queue.

```sh
seq 1000 | pillarbox send http://localhost:9324/numbers - --lines
pillarbox receive http://localhost:9324/numbers -n 100 --ack --json | jq .body
pillarbox redrive http://localhost:9324/numbers_dlq --reason timeout
```

`queue ls` and `top` also take a URL without a queue: a broker, a store, a Redis server, a database
or a region (`http://localhost:9324`, `file:./data`, `redis://host`, `postgresql://host/shop`,
`sqs://region`). A store can be read while another process has it open. A `memory:` mailbox exists
only in its own process, so no command can use it.

| exit code | meaning |
|---|---|
| 0 | success |
| 1 | failure, damage was found, or no message was received |
| 2 | wrong usage |
| 130 | Ctrl-C |

Colours are used on terminals only; `NO_COLOR=1` turns them off. To complete commands and flags in
your shell:

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
    return _table(("name", "value", "meaning"), rows)


def _tree(root: type[Exception]) -> Iterator[type[Exception]]:
    yield root
    for kind in root.__subclasses__():
        if kind.__module__.startswith("pillarbox."):
            yield from _tree(kind)


def _first_line(kind: type) -> str:
    return (kind.__doc__ or "").strip().splitlines()[0]


def _retryable(kind: Any) -> str:
    return "yes" if issubclass(kind, MailboxError) and kind.retryable else ""


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
