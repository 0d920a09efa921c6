"""R21, R100: the request and response example runs as it stands, on every backend."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.worker.conftest import Place

ROOT = Path(__file__).parents[2]
PRINTED = """\
by hand: 5
by a client: 2
an error: ValueError: there is nothing to count
a budget: tokens used: 3, allowed: 2
"""


def test_R21_the_example_of_request_and_response(place: Place) -> None:
    base = place.url_of("").rpartition("-")[0]
    done = subprocess.run(
        [sys.executable, "-W", "error", "examples/01_request_response/main.py", base],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, PRINTED, "")
