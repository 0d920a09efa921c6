"""The `pillarbox` command: one file per noun, joined here.

Commands print for people, or JSON with `--json`; nothing else in Pillarbox imports this package.
A command returns its exit code, or raises: what is raised becomes one line on stderr.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Sequence

from cyclopts import App, CycloptsError
from rich.console import Console

from pillarbox import __version__
from pillarbox.cli import messages
from pillarbox.cli.bench import app as bench_app
from pillarbox.cli.completion import app as completion_app
from pillarbox.cli.dashboard import app as dashboard_app
from pillarbox.cli.doctor import app as doctor_app
from pillarbox.cli.log import app as log_app
from pillarbox.cli.mcp import app as mcp_app
from pillarbox.cli.output import FAILED, INTERRUPTED, OK, USAGE, UsageError, complain
from pillarbox.cli.pipeline import app as pipeline_app
from pillarbox.cli.queue import app as queue_app
from pillarbox.cli.report import app as report_app
from pillarbox.cli.serve import app as serve_app
from pillarbox.cli.top import app as top_app
from pillarbox.cli.worker import app as worker_app
from pillarbox.core.errors import MailboxError
from pillarbox.log import LogError

app = App(
    name="pillarbox",
    help="Mailboxes with SQS semantics, an append-only log, and exactly-once pipelines on Spark.",
    help_epilogue=(
        "Exit codes: 0 done; 1 it failed, or damage was found; 2 the command line is wrong; "
        "130 Ctrl-C.\nNO_COLOR=1 turns colours off; they are off where output is no terminal.\n\n"
        "Example: pillarbox log info ./data"
    ),
    help_format="plaintext",
    version=f"pillarbox {__version__}",
)
app.command(queue_app)
messages.register(app)
app.command(top_app)
app.command(log_app)
app.command(serve_app)
app.command(worker_app)
app.command(mcp_app)
app.command(pipeline_app)
app.command(report_app)
app.command(dashboard_app)
app.command(doctor_app)
app.command(bench_app)
app.command(completion_app)


def run(tokens: Sequence[str]) -> int:
    """Run one command; its exit code. Whatever goes wrong is told in one line on stderr."""
    try:
        result = app(
            tokens,
            console=Console(),  # as wide as the terminal is now
            exit_on_error=False,
            print_error=False,
            result_action="return_value",
        )
    except (CycloptsError, UsageError) as error:
        complain(f"{_one_line(error)} See 'pillarbox --help'.")
        return USAGE
    except BrokenPipeError:
        # Whoever read us has seen enough; the interpreter must not fail on its last flush.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return OK
    except KeyboardInterrupt:
        return INTERRUPTED
    except (LogError, MailboxError, OSError, ModuleNotFoundError) as error:
        complain(_one_line(error))
        return FAILED
    return result if isinstance(result, int) else OK


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())


def main() -> None:
    """Run the command line; the entry point of the `pillarbox` script."""
    # Commands say what went wrong themselves, and stdout is for their results only.
    logging.getLogger("pillarbox").setLevel(logging.CRITICAL)
    sys.exit(run(sys.argv[1:]))
