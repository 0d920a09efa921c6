"""What every asynchronous mailbox does when a second event loop uses it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from pillarbox import InvalidParameterError


def check_second_loop_is_refused(box: Any) -> None:
    """A mailbox belongs to the loop that first uses it, and still works there after a refusal."""
    first = asyncio.new_event_loop()
    try:
        first.run_until_complete(box.send("a"))
        with pytest.raises(InvalidParameterError, match="loop"):
            asyncio.run(box.send("b"))
        assert first.run_until_complete(box.approximate_count()) == 1
        first.run_until_complete(box.close())
    finally:
        first.close()
