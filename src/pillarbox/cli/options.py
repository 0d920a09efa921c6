"""The parameters that several commands share, and how every command is set up."""

from __future__ import annotations

import sys
from typing import Annotated

from cyclopts import App, Parameter
from rich.console import Console
from rich.prompt import Confirm
from rich.text import Text

from pillarbox.cli.output import UsageError

DEFAULTS = Parameter(negative=(), show_default=False, show_env_var=True)

Url = Annotated[str, Parameter(help="URL of the queue, such as http://localhost:9324/orders.")]
Json = Annotated[bool, Parameter(name="--json", help="Print one JSON document.")]
JsonLines = Annotated[bool, Parameter(name="--json", help="Print one JSON object per line.")]
Limit = Annotated[int | None, Parameter(help="Stop after this many.")]
Yes = Annotated[bool, Parameter(name=["--yes", "-y"], help="Do not ask for confirmation.")]


def command(name: str, help_text: str, epilogue: str) -> App:
    """A command of the `pillarbox` program, or a group of them."""
    return App(
        name=name,
        help=help_text,
        help_epilogue=epilogue,
        help_format="plaintext",
        default_parameter=DEFAULTS,
    )


def check_limit(limit: int | None) -> None:
    if limit is not None and limit < 1:
        raise UsageError(f"--limit must be 1 or more; got {limit}.")


def key_and_value(option: str, text: str) -> tuple[str, str]:
    """The two halves of NAME=VALUE."""
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise UsageError(f"{option} must be name=value; got {text!r}.")
    return name, value


def confirmed(question: str, *, json: bool, refusal: str) -> bool:
    """Ask on the terminal; where nobody can answer, refuse."""
    if json or not sys.stdin.isatty():
        raise UsageError(refusal)
    return Confirm.ask(Text(question), default=False, console=Console(stderr=True))
