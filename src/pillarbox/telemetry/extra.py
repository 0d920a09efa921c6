"""The error for a missing extra names the command that installs it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def needed() -> Iterator[None]:
    """Around the imports of what `pillarbox[telemetry]` installs."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"telemetry needs {error.name}, which is not installed; "
            "install it with: pip install 'pillarbox[telemetry]'",
            name=error.name,
        ) from error
