"""The tests of the contract, one file per topic; each is named for its row and its behaviour."""

import pkgutil

import pytest

# Before they are imported, so that a failed assert shows the compared values.
pytest.register_assert_rewrite(
    *(f"{__name__}.{file.name}" for file in pkgutil.iter_modules(__path__))
)
