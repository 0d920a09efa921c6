"""Clients in JavaScript: aws-sdk-js v3 and the npm package sqs-consumer."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest


@pytest.mark.parametrize("script", ["sdk.mjs", "consumer.mjs"])
def test_R55_a_javascript_client_runs_its_scenario(
    script: str, javascript: Path, environment: dict[str, str]
) -> None:
    done = subprocess.run(
        ["node", script],
        cwd=javascript,
        env=environment,
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr
