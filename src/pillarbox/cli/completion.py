"""`pillarbox completion`: shell completion of commands and flags."""

from __future__ import annotations

import sys
from typing import Annotated, Literal

from cyclopts import Parameter

from pillarbox.cli.options import command
from pillarbox.cli.output import OK

app = command(
    "completion",
    "Print a completion script for bash, zsh or fish.\n\n"
    "bash: save it as ~/.local/share/bash-completion/completions/pillarbox. zsh: as _pillarbox in "
    "a directory of $fpath. fish: as ~/.config/fish/completions/pillarbox.fish.",
    "Example: source <(pillarbox completion bash)",
)


@app.default
def completion(
    shell: Annotated[Literal["bash", "zsh", "fish"], Parameter(help="The shell.")], /
) -> int:
    """Print a completion script."""
    from pillarbox.cli import app as pillarbox  # noqa: PLC0415 - it imports this module

    sys.stdout.write(pillarbox.generate_completion(prog_name="pillarbox", shell=shell))
    return OK
