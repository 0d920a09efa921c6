"""Environments with the built wheel in them, and with nothing that it does not ask for."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.environments import python_with_only, wheel_of_pillarbox


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return wheel_of_pillarbox(tmp_path_factory.mktemp("dist"))


@pytest.fixture(scope="session")
def bare(tmp_path_factory: pytest.TempPathFactory, wheel: Path) -> Path:
    """The Python of `pip install pillarbox`."""
    return python_with_only(tmp_path_factory.mktemp("bare"), wheel)


@pytest.fixture(scope="session")
def with_cli(tmp_path_factory: pytest.TempPathFactory, wheel: Path) -> Path:
    """The Python of `pip install 'pillarbox[cli]'`."""
    return python_with_only(tmp_path_factory.mktemp("cli"), wheel, "cli")
