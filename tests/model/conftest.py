"""Lanes of very few messages a part, so that the short queues of a model have several parts."""

from __future__ import annotations

import pytest

from pillarbox.core import lane


@pytest.fixture(autouse=True)
def _short_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lane, "PART_MAX", 3)
