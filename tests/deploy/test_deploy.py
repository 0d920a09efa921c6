"""The systemd unit and the Dockerfile: read by the tools that know them."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

DEPLOY = Path(__file__).parents[2] / "deploy"


def hadolint(dockerfile: str) -> subprocess.CompletedProcess[str]:
    program = Path(sys.executable).with_name("hadolint")
    return subprocess.run(
        [program, "--no-color", "-"], input=dockerfile, capture_output=True, text=True, check=False
    )


def test_R59_the_dockerfile_has_no_finding() -> None:
    found = hadolint((DEPLOY / "Dockerfile").read_text())
    assert (found.returncode, found.stdout) == (0, "")


def test_R59_a_careless_dockerfile_has_one() -> None:
    assert "DL3007" in hadolint("FROM python:latest\nRUN cd /tmp\n").stdout


def test_R59_the_unit_is_one_that_systemd_reads(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed here")
    text = (DEPLOY / "pillarbox.service").read_text()
    unit = tmp_path / "pillarbox.service"
    unit.write_text(re.sub(r"^ExecStart=\S+", "ExecStart=/bin/true", text, flags=re.MULTILINE))
    found = subprocess.run(
        ["systemd-analyze", "verify", unit], capture_output=True, text=True, check=False
    )
    assert "pillarbox.service" not in found.stderr
    unit.write_text(unit.read_text().replace("ProtectSystem=strict", "ProtectSystem=sternly"))
    control = subprocess.run(
        ["systemd-analyze", "verify", unit], capture_output=True, text=True, check=False
    )
    assert "sternly" in control.stderr


def test_R59_the_unit_starts_a_command_that_exists() -> None:
    text = (DEPLOY / "pillarbox.service").read_text()
    found = re.search(r"^ExecStart=\S+/pillarbox (\S+) (.*)$", text, re.MULTILINE)
    assert found is not None
    usage = subprocess.run(
        [sys.executable, "-m", "pillarbox.cli", found[1], "--help"],
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    for flag in re.findall(r"--[\w-]+", found[2]):
        assert flag in usage
