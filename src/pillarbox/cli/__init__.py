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
from typing import Annotated, Literal

from cyclopts import CycloptsError, Parameter
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
from pillarbox.cli.usage import refused_option, usage_message
from pillarbox.core.errors import InvalidParameterError, MailboxError
from pillarbox.log import LogError
from pillarbox.pipeline import PipelineError
from pillarbox.spark.errors import SparkError


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
        complain(usage_message(error, app, tokens))
        return USAGE
    except InvalidParameterError as error:
        usage = refused_option(error, app, tokens)
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


def main() -> None:
    """Run the command line; the entry point of the `pillarbox` script."""
    # Commands report errors themselves, and stdout is for their results only.
    logging.getLogger("pillarbox").setLevel(logging.CRITICAL)
    if isinstance(sys.stdout, io.TextIOWrapper):  # escape what the encoding of stdout lacks
        sys.stdout.reconfigure(errors="backslashreplace")
    sys.exit(run(sys.argv[1:]))
