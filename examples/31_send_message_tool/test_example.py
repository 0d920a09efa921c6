"""The example runs, and the model learns from its error."""

from __future__ import annotations

import runpy
from pathlib import Path

HERE = Path(__file__).parent


def test_R96_the_model_gets_an_error_then_an_id_then_a_time() -> None:
    lines = runpy.run_path(str(HERE / "main.py"))["main"]()
    assert [line.split("-> ")[1] for line in lines[:3]] == [
        "error",
        "messageId",
        "messageId, scheduledDeliveryTime",
    ]
    assert lines[3:] == ["tester got {'build': 7} for task build-7 from planner", "delayed: 1"]
