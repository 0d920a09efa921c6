"""The error for a missing optional package, which names the pip command."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class MissingExtraError(ModuleNotFoundError):
    """A feature needs a package that only an extra of Pillarbox installs."""


@contextmanager
def extra(name: str, feature: str) -> Iterator[None]:
    """Wrap imports of packages that `pillarbox[name]` installs, to explain a missing one.

    Examples:
        >>> with extra("redis", "a mailbox on Redis"):
        ...     import no_such_package
        Traceback (most recent call last):
        ...
        pillarbox.extras.MissingExtraError: a mailbox on Redis needs no_such_package, which is \
not installed; install it with: pip install 'pillarbox[redis]'
    """
    try:
        yield
    except MissingExtraError:
        raise
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] == "pillarbox":
            raise
        raise MissingExtraError(
            f"{feature} needs {error.name}, which is not installed; "
            f"install it with: pip install 'pillarbox[{name}]'",
            name=error.name,
        ) from error
