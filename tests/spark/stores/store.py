"""What the tests of this folder ask of a store, and which tests run on which."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import pytest
from deltalake import DeltaTable

#: Spark waits for HDFS, which makes a test with both a minute.
SLOW = pytest.param("hdfs", marks=pytest.mark.soak)


def on(*names: Any) -> pytest.MarkDecorator:
    """Run a test on these stores."""
    return pytest.mark.parametrize("store", names, indirect=True)


class Store:
    #: How many entries to write where a test wants many of them.
    many = 250

    @property
    def variables(self) -> Mapping[str, str]:
        """The environment of a program that uses it."""
        return {}

    def url(self, name: str) -> str:
        raise NotImplementedError

    def need_jars(self) -> None:
        """Skip the test if Spark can't have the jars that it needs."""

    def losing(self, place: str, part: str, count: int = 1) -> AbstractContextManager[str]:
        """A place, reached so that answers are lost: the store did it, the client never hears.

        Of the first writes of files with `part` in their path; at the end, all of them were lost.
        """
        raise NotImplementedError

    def rows(self, url: str) -> list[dict[str, Any]]:
        """The rows of a Delta table, as another program reads them."""
        found: list[dict[str, Any]] = DeltaTable(url).to_pyarrow_table().to_pylist()
        return found


@dataclass(frozen=True)
class Directory(Store):
    root: str

    def url(self, name: str) -> str:
        return f"{self.root}/{name}"
