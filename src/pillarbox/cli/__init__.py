"""The `pillarbox` command: one file per noun, joined here.

Commands print for people; nothing else in Pillarbox imports this package.
"""

from __future__ import annotations

from cyclopts import App

from pillarbox import __version__

app = App(
    name="pillarbox",
    help="Mailboxes with SQS semantics, an append-only log, and exactly-once pipelines on Spark.",
    version=f"pillarbox {__version__}",
)


def main() -> None:
    """Run the command line; the entry point of the `pillarbox` script."""
    app()
