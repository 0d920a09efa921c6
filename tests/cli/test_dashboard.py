"""`pillarbox dashboard URL...` for what no broker serves."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from pillarbox import open_mailbox
from pillarbox.cli import run


def _status(where: str, **fields: str) -> int:
    try:
        with urllib.request.urlopen(urllib.request.Request(where, headers=fields)) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def test_R59_R115_a_store_on_disk_has_a_dashboard_for_its_own_pages(tmp_path: Path) -> None:
    url = f"file:{tmp_path}/orders"
    with open_mailbox(url, str) as box:
        box.send("hello")
    command = [sys.executable, "-m", "pillarbox.cli", "dashboard", url, "--port", "0", "--json"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        where = json.loads(process.stdout.readline())["dashboard"]
        with urllib.request.urlopen(where) as answer:
            page = answer.read().decode()
        assert ">orders<" in page
        with urllib.request.urlopen(f"{where}dashboard/queues/orders") as answer:
            assert "hello" in answer.read().decode()
        assert _status(where, Host="evil.example") == 421
        assert _status(where, Origin="http://evil.example") == 403
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=30)
    assert process.returncode == 0


def test_R59_a_dashboard_of_nothing_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["dashboard"]) == 2
    assert "at least one mailbox" in capsys.readouterr().err
