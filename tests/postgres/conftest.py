"""A database for each test, on one server."""

from __future__ import annotations

import pytest

from pillarbox.testing.postgres import shared_server


@pytest.fixture
def url() -> str:
    """The URL of a new database, without a queue."""
    return shared_server().database()
