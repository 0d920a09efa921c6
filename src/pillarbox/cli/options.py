"""The `pillarbox` command, to which the other modules add theirs, and shared parameters."""

from __future__ import annotations

import inspect
import sys
from typing import Annotated

from cyclopts import App, Parameter
from rich.console import Console
from rich.prompt import Confirm
from rich.text import Text

from pillarbox import __version__
from pillarbox.cli.output import UsageError
from pillarbox.core import limits
from pillarbox.core.errors import InvalidParameterError

PORT_MAX = 65_535

app = App(
    name="pillarbox",
    version=f"pillarbox {__version__}",
    help="Mailboxes with SQS semantics, an append-only log, and exactly-once pipelines on Spark.",
    help_epilogue="Exit codes: 0 success; 1 failure, or damage was found; 2 wrong usage; "
    "130 Ctrl-C.\nColours are used on terminals only; NO_COLOR=1 turns them off.\n\n"
    "Example: pillarbox send file:./data/orders hello",
    help_format="plaintext",
    group_parameters="Options",
    default_parameter=Parameter(
        negative=(),
        show_default=lambda value: None if value is False else value,
        show_env_var=True,
    ),
)

Url = Annotated[str, Parameter(help="URL of the queue, such as http://localhost:9324/orders.")]
Json = Annotated[bool, Parameter(name="--json", help="Print the result as JSON.")]
JsonLines = Annotated[bool, Parameter(name="--json", help="Print one JSON object per line.")]
Limit = Annotated[int | None, Parameter(help="Stop after this many messages.")]
Yes = Annotated[bool, Parameter(name=["--yes", "-y"], help="Do not ask for confirmation.")]


def group(name: str, help_text: str, epilogue: str) -> App:
    """Add a command that has subcommands."""
    command = App(name=name, help=help_text, help_epilogue=epilogue)
    app.command(command)
    return command


def reflow(command: App) -> None:
    """Remove the line breaks of the source from help texts; the terminal wraps lines."""
    for name in command:
        if not name.startswith("-"):
            reflow(command[name])
    paragraphs = inspect.cleandoc(command.help or "").split("\n\n")
    command.help = "\n\n".join(" ".join(each.split()) for each in paragraphs)


def check_least(option: str, value: int | None, least: int) -> None:
    if value is not None and value < least:
        raise UsageError(f"{option} must be {least} or more; got {value}.")


def check_seconds(parameter: str, value: float) -> None:
    if not limits.seconds(parameter, value, limits.WAIT_SECONDS_MAX):
        raise InvalidParameterError(parameter, value, "more than 0 seconds")


def key_and_value(option: str, text: str) -> tuple[str, str]:
    """Split NAME=VALUE."""
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise UsageError(f"{option} must be name=value; got {text!r}.")
    return name, value


def confirmed(question: str, *, json: bool, refusal: str) -> bool:
    """Ask on the terminal; without a terminal, raise UsageError with `refusal`."""
    if json or not sys.stdin.isatty():
        raise UsageError(refusal)
    return Confirm.ask(Text(question), default=False, console=Console(stderr=True))
