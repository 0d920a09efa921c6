"""The `pillarbox` command, also `python -m pillarbox`. Says what to install if necessary."""

from __future__ import annotations

import sys

from pillarbox.extras import MissingExtraError, extra


def main() -> None:
    """Run the command line."""
    try:
        with extra("cli", "the pillarbox command"):
            from pillarbox.cli import main as run  # noqa: PLC0415 - behind an extra
    except MissingExtraError as error:
        sys.exit(f"pillarbox: {error}")
    except KeyboardInterrupt:  # before the command itself could handle it
        sys.exit(130)
    run()


if __name__ == "__main__":
    main()
