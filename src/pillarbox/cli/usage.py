"""Error messages for a wrong command line: which argument is wrong, and which help to read."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches

from cyclopts import (
    App,
    CoercionError,
    CycloptsError,
    MissingArgumentError,
    UnknownCommandError,
    UnusedCliTokensError,
)

from pillarbox.cli.output import UsageError
from pillarbox.core.errors import InvalidParameterError

# Mailbox parameters whose command-line options have other names.
_OPTIONS = {
    "url": "URL",
    "max_messages": "--max",
    "delay_seconds": "--delay",
    "wait_time_seconds": "--wait",
    "visibility_timeout": "--visibility",
    "ids": "IDS",
    "attributes": "--attribute",
}
_KINDS = {int: "a whole number", float: "a number"}


def usage_message(error: Exception, app: App, tokens: Sequence[str]) -> str:
    """Return a usage error as one line that ends with the help command."""
    path, _, rest = app.parse_commands(list(tokens))
    text = _describe(error, app, rest).rstrip(".")
    stop = "" if text.endswith("?") else "."
    return f"{text}{stop} See '{' '.join(['pillarbox', *path, '--help'])}'."


def _describe(error: Exception, app: App, rest: Sequence[str]) -> str:
    if isinstance(error, UnknownCommandError) and rest:
        command = error.app or app
        close = get_close_matches(rest[0], [name for name in command if name[0] != "-"], 1)
        guess = f"; did you mean {close[0]!r}?" if close else ""
        return f"there is no command {rest[0]!r}{guess}"
    if isinstance(error, UnusedCliTokensError) and error.unused_tokens:
        return f"unexpected argument {error.unused_tokens[0]!r}"
    if isinstance(error, MissingArgumentError) and error.argument is not None:
        name = error.argument.name
        return f"{name} needs a value" if name.startswith("-") else f"{name} is missing"
    if isinstance(error, CoercionError) and error.token is not None:
        kind = _KINDS.get(error.target_type) if error.target_type else None
        if kind is not None:
            name = error.token.keyword or (error.argument.name if error.argument else "the value")
            return f"{name} must be {kind}; got {error.token.value!r}"
    text = str(error)
    return text[:1].lower() + text[1:] if isinstance(error, CycloptsError) else text


def refused_option(error: InvalidParameterError, app: App, tokens: Sequence[str]) -> str | None:
    """Return a usage error for a value that a mailbox refused; None if no option set it."""
    _, apps, _ = app.parse_commands(list(tokens))
    option = _OPTIONS.get(error.parameter, f"--{error.parameter.replace('_', '-')}")
    arguments = apps[-1].assemble_argument_collection() if apps[-1].default_command else ()
    if option not in [name for each in arguments for name in each.names]:
        return None
    usage_error = UsageError(option + str(error).removeprefix(error.parameter))
    return usage_message(usage_error, app, tokens)
