"""`pillarbox completion`: what a shell needs to complete commands and flags."""

from __future__ import annotations

import sys
from typing import Annotated, Literal

from cyclopts import App, Parameter

from pillarbox.cli.output import OK

app = App(
    name="completion",
    help=(
        "Print the script that completes commands and flags in bash, zsh or fish.\n\n"
        "bash: put it in ~/.local/share/bash-completion/completions/pillarbox. zsh: in a file "
        "_pillarbox of a directory in $fpath. fish: in ~/.config/fish/completions/pillarbox.fish."
    ),
    help_epilogue="Example: source <(pillarbox completion bash)",
    help_format="plaintext",
    default_parameter=Parameter(negative=(), show_default=False),
)


@app.default
def completion(
    shell: Annotated[Literal["bash", "zsh", "fish"], Parameter(help="Whose script.")], /
) -> int:
    """Print the script."""
    from pillarbox.cli import app as pillarbox  # noqa: PLC0415 - it knows us

    sys.stdout.write(pillarbox.generate_completion(prog_name="pillarbox", shell=shell))
    return OK
