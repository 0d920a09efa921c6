"""The cases, one file for each theme; each is named for its row and its behaviour."""

import pkgutil

import pytest

# Before they are imported: an assert that fails shall say what it compared.
pytest.register_assert_rewrite(
    *(f"{__name__}.{file.name}" for file in pkgutil.iter_modules(__path__))
)
