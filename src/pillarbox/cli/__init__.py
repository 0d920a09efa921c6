"""The `pillarbox` command: one file per noun, joined here.

Commands print text, or JSON with `--json`. Nothing else in Pillarbox imports this package. A
command returns its exit code or raises; every exception becomes one line on stderr.
"""

from __future__ import annotations

import io
import logging
import os
import sys
from collections.abc import Sequence
from difflib import get_close_matches
from typing import Annotated, Literal

from cyclopts import (
    CoercionError,
    CycloptsError,
    MissingArgumentError,
    Parameter,
    UnknownCommandError,
    UnusedCliTokensError,
)
from rich.console import Console

from pillarbox.cli import (  # noqa: F401 - each adds its commands to `app`
    backup,
    bench,
    dashboard,
    doctor,
    log,
    mcp,
    messages,
    pipeline,
    postgres,
    queue,
    report,
    serve,
    top,
    worker,
)
from pillarbox.cli.options import app, reflow
from pillarbox.cli.output import FAILED, INTERRUPTED, OK, USAGE, UsageError, complain, reason_of
from pillarbox.core.errors import InvalidParameterError, MailboxError
from pillarbox.log import LogError
from pillarbox.pipeline import PipelineError
from pillarbox.spark.errors import SparkError

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


@app.command(help_epilogue="Example: source <(pillarbox completion bash)")
def completion(
    shell: Annotated[Literal["bash", "zsh", "fish"], Parameter(help="Shell to complete for.")], /
) -> int:
    """Print a completion script for bash, zsh or fish.

    bash: save it as ~/.local/share/bash-completion/completions/pillarbox. zsh: as _pillarbox in a
    directory of $fpath. fish: as ~/.config/fish/completions/pillarbox.fish.
    """
    sys.stdout.write(app.generate_completion(prog_name="pillarbox", shell=shell))
    return OK


def run(tokens: Sequence[str]) -> int:
    """Run one command and return its exit code. Errors are printed to stderr, a line each."""
    try:
        if {"-h", "--help"}.intersection(tokens):
            reflow(app)
        result = app(
            tokens,
            console=Console(),  # as wide as the terminal is now
            exit_on_error=False,
            print_error=False,
            result_action="return_value",
        )
    except (CycloptsError, UsageError) as error:
        complain(_usage_message(error, tokens))
        return USAGE
    except InvalidParameterError as error:
        usage = _refused_option(error, tokens)
        complain(usage or str(error))
        return FAILED if usage is None or error.parameter == "to" else USAGE
    except BrokenPipeError:
        # The reader of stdout has closed it; the interpreter must not fail on its last flush.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return OK
    except KeyboardInterrupt:
        return INTERRUPTED
    except PipelineError as error:
        for problem in error.problems:
            complain(problem)
        return FAILED
    except (LogError, MailboxError, SparkError, ImportError) as error:
        complain(str(error))
        return FAILED
    except OSError as error:
        complain(reason_of(error))
        return FAILED
    return result if isinstance(result, int) else OK


def _usage_message(error: Exception, tokens: Sequence[str]) -> str:
    """Return a usage error as one line that ends with the help command."""
    path, _, rest = app.parse_commands(list(tokens))
    text = _describe(error, rest).rstrip(".")
    stop = "" if text.endswith("?") else "."
    return f"{text}{stop} See '{' '.join(['pillarbox', *path, '--help'])}'."


def _describe(error: Exception, rest: Sequence[str]) -> str:
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


def _refused_option(error: InvalidParameterError, tokens: Sequence[str]) -> str | None:
    """Return a usage error for a value that a mailbox refused; None if no option set it."""
    _, apps, _ = app.parse_commands(list(tokens))
    option = _OPTIONS.get(error.parameter, f"--{error.parameter.replace('_', '-')}")
    arguments = apps[-1].assemble_argument_collection() if apps[-1].default_command else ()
    if option not in [name for each in arguments for name in each.names]:
        return None
    usage_error = UsageError(option + str(error).removeprefix(error.parameter))
    return _usage_message(usage_error, tokens)


def main() -> None:
    """Run the command line; the entry point of the `pillarbox` script."""
    # Commands report errors themselves, and stdout is for their results only.
    logging.getLogger("pillarbox").setLevel(logging.CRITICAL)
    if isinstance(sys.stdout, io.TextIOWrapper):  # escape what the encoding of stdout lacks
        sys.stdout.reconfigure(errors="backslashreplace")
    sys.exit(run(sys.argv[1:]))
