"""The systemd unit and the Dockerfile: read by the tools that know them."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from pillarbox.testing.broker import running_broker
from tests.broker.server_process import Server
from tests.broker.test_security import _certificate

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


def test_R59_the_health_check_knows_the_port_and_tls(tmp_path: Path) -> None:
    text = (DEPLOY / "Dockerfile").read_text()
    found = re.search(r"^HEALTHCHECK .*?CMD (\[.*?\])$", text, re.MULTILINE | re.DOTALL)
    assert found is not None
    command = [sys.executable, *json.loads(found[1])[1:]]

    def healthy(url: str, **settings: str) -> bool:
        port = url.rpartition(":")[2]
        env = {**os.environ, "PILLARBOX_PORT": port, **settings}
        done = subprocess.run(command, env=env, capture_output=True, check=False, timeout=60)
        return done.returncode == 0

    with running_broker() as url:
        assert healthy(url)
    assert not healthy(url)
    chain, key = _certificate(tmp_path, 1)
    with running_broker(tls_certificate=chain, tls_key=key) as url:
        assert healthy(url, PILLARBOX_TLS_CERTIFICATE=chain)
        assert not healthy(url)


# -- who may come in ---------------------------------------------------------------------------


def _settings(data: Path) -> dict[str, str]:
    """The environment that the image gives to the broker, with its data elsewhere."""
    text = (DEPLOY / "Dockerfile").read_text()
    found = dict(re.findall(r'(PILLARBOX_\w+)="([^"]*)"', text))
    assert found["PILLARBOX_HOST"] == "0.0.0.0"
    return {**found, "PILLARBOX_DATA": str(data), "PILLARBOX_PORT": "0"}


def _status(url: str) -> int:
    try:
        with urllib.request.urlopen(url) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def _serve(folder: Path, settings: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pillarbox.cli", "serve"],
        env={**os.environ, **settings}, cwd=folder, capture_output=True, text=True, check=False,
        timeout=60,
    )  # fmt: skip


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1"])
def test_R115_the_image_does_not_serve_everyone_unasked(tmp_path: Path, host: str) -> None:
    settings = {**_settings(tmp_path / "data"), "PILLARBOX_HOST": host}
    found = _serve(tmp_path, settings)
    assert found.returncode == 2  # wrong usage: of an option, or of its variable
    told = " ".join(found.stderr.split())
    assert "PILLARBOX_KEY=id:secret" in told
    assert "PILLARBOX_ANONYMOUS=true" in told
    assert not (tmp_path / "data").exists()


def test_R115_the_image_serves_whoever_has_its_key(tmp_path: Path) -> None:
    settings = {**_settings(tmp_path / "data"), "PILLARBOX_KEY": "AKADMIN:a:secret"}
    with Server(env=settings) as server:
        here = f"http://127.0.0.1:{server.port}"
        assert server.told["keys"] == 1
        assert _status(f"{here}/readyz") == 200
        for path in ("/", "/dashboard/", "/metrics"):
            assert _status(here + path) == 401
        assert _status(f"{here}/?Action=ListQueues") == 403
        manager = urllib.request.HTTPPasswordMgrWithPriorAuth()
        manager.add_password(None, here, "AKADMIN", "a:secret", is_authenticated=True)
        opener = urllib.request.build_opener(urllib.request.HTTPBasicAuthHandler(manager))
        assert opener.open(f"{here}/metrics").status == 200


def test_R115_control_the_image_serves_everyone_if_it_is_told_to(tmp_path: Path) -> None:
    settings = {**_settings(tmp_path / "data"), "PILLARBOX_ANONYMOUS": "true"}
    with Server(env=settings) as server:
        here = f"http://127.0.0.1:{server.port}"
        assert _status(f"{here}/?Action=ListQueues") == 200


def test_R115_a_key_joins_those_of_the_file_and_is_not_shown(tmp_path: Path) -> None:
    file = tmp_path / "broker.toml"
    file.write_text('[[keys]]\nid = "AKSHOP"\nsecret = "s"\n')
    settings = {"PILLARBOX_DATA": "none", "PILLARBOX_CONFIG": str(file), "PILLARBOX_KEY": "A:b"}
    with Server(env=settings) as server:
        assert server.told["keys"] == 2
    found = _serve(tmp_path, {**settings, "PILLARBOX_KEY": "only-a-secret"})
    assert found.returncode == 2
    assert "id:secret" in found.stderr
    assert "only-a-secret" not in found.stderr
