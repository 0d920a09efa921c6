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
from pillarbox.dashboard import UrlMailboxes
from pillarbox.testing.broker import running_broker


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


def test_R59_a_url_without_a_queue_is_refused_with_the_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with open_mailbox(f"file:{tmp_path}/orders", str) as box:
        box.send("hello")
    assert run(["dashboard", f"file:{tmp_path}"]) == 2
    assert "names no queue; add its name to the URL" in capsys.readouterr().err
    assert run(["dashboard", f"file:{tmp_path}/ordres"]) == 1
    assert "ordres" in capsys.readouterr().err


def test_R115_the_title_of_a_dashboard_shows_no_password(tmp_path: Path) -> None:
    with running_broker() as url:
        open_mailbox(f"{url}/orders", str).close()
        boxes = UrlMailboxes([f"{url}/orders".replace("://", "://someone:secret@")])
        assert "secret" not in boxes.title
        boxes.close()


def test_R59_two_mailboxes_of_one_name_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One would hide the other."""
    urls = [f"file:{tmp_path}/{store}/orders" for store in ("a", "b")]
    for url in urls:
        open_mailbox(url, str).close()
    assert run(["dashboard", *urls]) == 2
    assert "two mailboxes are named 'orders'" in " ".join(capsys.readouterr().err.split())
