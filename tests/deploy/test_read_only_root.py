"""The broker as the container runs it: an unprivileged user, a read-only root, no capabilities."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

UID = 10001
# In a mount namespace of its own: everything becomes read-only, but the directory of the data.
READ_ONLY = """
mount --make-rprivate /
mount --bind "$DATA" "$DATA"
mount -o remount,bind,ro /
for place in /tmp /var /dev/shm; do
    if mountpoint -q "$place"; then mount -o remount,bind,ro "$place"; fi
done
exec setpriv --reuid="$USER_ID" --regid="$USER_ID" --clear-groups --inh-caps=-all \
    --bounding-set=-all --no-new-privs "$@"
"""


def confined(data: Path, *command: str) -> list[str]:
    for program in ("unshare", "setpriv"):
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed here")
    if os.geteuid() != 0:
        pytest.skip("only root can make a root read-only for one process")
    probe = ["setpriv", f"--reuid={UID}", f"--regid={UID}", "--clear-groups", sys.executable, "-V"]
    if subprocess.run(probe, capture_output=True, check=False).returncode != 0:
        pytest.skip("this Python is installed where only root can run it")
    names = [f"DATA={data}", f"USER_ID={UID}"]
    return ["env", *names, "unshare", "--mount", "bash", "-ec", READ_ONLY, "confined", *command]


def owned(folder: Path) -> Path:
    """A directory for the data that the user can reach, as the volume of the image."""
    data = folder / "data"
    data.mkdir(mode=0o700)
    os.chown(data, UID, UID)
    for parent in data.parents:
        if parent == Path("/tmp"):
            break
        parent.chmod(0o755)
    return data


def test_R59_the_broker_runs_without_rights_on_a_read_only_root(tmp_path: Path) -> None:
    data = owned(tmp_path)
    serve = [sys.executable, "-m", "pillarbox.cli", "serve", "--json", "--port", "0"]
    environment = {**os.environ, "HOME": str(data), "PYTHONDONTWRITEBYTECODE": "1"}
    with subprocess.Popen(
        confined(data, *serve, "--data", str(data)), env=environment, cwd="/",
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as broker:  # fmt: skip
        assert broker.stdout is not None
        line = broker.stdout.readline()
        assert line, broker.communicate()[1]
        url = json.loads(line)["url"]
        status = Path(f"/proc/{broker.pid}/status").read_text()
        assert f"Uid:\t{UID}\t{UID}" in status
        assert "CapBnd:\t0000000000000000" in status
        send = f"{url}/?Action=CreateQueue&QueueName=orders"
        request = urllib.request.Request(send, method="POST")
        assert urllib.request.urlopen(request).status == 200
        assert urllib.request.urlopen(f"{url}/readyz").status == 200
        broker.send_signal(signal.SIGTERM)
        broker.communicate(timeout=60)
    assert broker.returncode == 0
    assert (data / "log").is_dir()


def test_R59_control_nothing_else_can_be_written_there(tmp_path: Path) -> None:
    data = owned(tmp_path)
    for place in ("/tmp", "/var/tmp", tmp_path):
        done = subprocess.run(
            confined(data, "touch", f"{place}/written"), capture_output=True, text=True, check=False
        )
        assert "Read-only file system" in done.stderr
    assert subprocess.run(confined(data, "touch", f"{data}/written"), check=False).returncode == 0
