"""Keys are added, rotated and revoked while the broker runs."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pillarbox import MailboxError, open_mailbox
from pillarbox.broker.config import Config, Key
from pillarbox.core.errors import InvalidParameterError
from pillarbox.mailbox.protocol import Mailbox
from pillarbox.testing.broker import RunningBroker, running_broker
from pillarbox.testing.redis import until

OLD, NEW, BOSS = Key("old", "a"), Key("new", "b"), Key("boss", "c")


def opened(url: str, key: Key) -> Mailbox[str]:
    return open_mailbox(f"{url.replace('://', f'://{key.id}:{key.secret}@')}/jobs", str)


def reload(url: RunningBroker, *keys: Key) -> bool:
    return url.broker.reload(lambda: Config(keys=keys))


def refused(box: Mailbox[str]) -> bool:
    try:
        box.send("x")
    except MailboxError:
        return True
    return False


def test_R59_a_key_is_added_and_another_revoked_while_clients_are_connected() -> None:
    with running_broker(keys=(OLD, BOSS)) as url:
        old, boss = opened(url, OLD), opened(url, BOSS)
        old.send("before")
        boss.send("before")
        signed = url.broker.metrics.requests["GetSessionToken"]

        assert reload(url, OLD, NEW, BOSS)
        opened(url, NEW).send("a")
        assert not refused(old)
        assert url.broker.metrics.requests["GetSessionToken"] == signed + 1  # the new one only

        assert reload(url, NEW, BOSS)
        assert refused(old)
        assert not refused(boss)
        assert refused(old)


def test_R59_control_keys_that_are_not_replaced_still_work(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with running_broker(keys=(OLD, BOSS)) as url:
        old = opened(url, OLD)
        monkeypatch.setattr(url.broker.access, "replace_keys", lambda keys: None)

        assert reload(url, NEW, BOSS)

        assert not refused(old)


def test_R59_the_secret_of_a_key_is_rotated() -> None:
    with running_broker(keys=(OLD,)) as url:
        box = opened(url, OLD)
        box.send("before")

        assert reload(url, Key("old", "rotated"))

        assert refused(box)
        opened(url, Key("old", "rotated")).send("after")


def test_R59_rights_that_were_taken_away_are_gone_at_once() -> None:
    with running_broker(keys=(OLD,)) as url:
        box = opened(url, OLD)
        box.send("before")

        assert reload(url, Key("old", "a", actions=("receive",)))

        assert refused(box)
        assert [m.body for m in box.receive()] == ["before"]


def test_R59_a_bad_file_or_no_keys_at_all_change_nothing() -> None:
    def bad() -> Config:
        raise InvalidParameterError("--config", "x", "valid TOML")

    with running_broker(keys=(OLD,)) as url:
        box = opened(url, OLD)
        assert not url.broker.reload(bad)
        assert not reload(url)
        assert not url.broker.access.open_to_all
        box.send("still there")
    with running_broker() as url:
        assert not reload(url, OLD)
        assert url.broker.access.open_to_all


def test_R59_sighup_reads_the_keys_again(tmp_path: Path) -> None:
    def write(*keys: Key) -> None:
        blocks = [f'[[keys]]\nid = "{key.id}"\nsecret = "{key.secret}"\n' for key in keys]
        (tmp_path / "pillarbox.toml").write_text("\n".join(['data = "none"', "port = 0", *blocks]))

    write(OLD)
    command = [sys.executable, "-m", "pillarbox", "serve", "--json"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            url = json.loads(process.stdout.readline())["url"]
            old = opened(url, OLD)
            old.send("before")
            write(NEW)
            assert not refused(old)  # the control: without the signal nothing changes
            with pytest.raises(MailboxError):
                opened(url, NEW)
            process.send_signal(signal.SIGHUP)

            until(lambda: refused(old), "the old key is revoked")

            opened(url, NEW).send("after")
        finally:
            process.terminate()
    assert process.returncode == 0


@pytest.mark.parametrize("flag", [True, False])
def test_R59_a_broker_without_a_file_survives_sighup(flag: bool, tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "pillarbox",
        "serve",
        "--json",
        "--data",
        "none",
        "--port",
        "0",
    ]
    key = ["--key", "boss:c"] if flag else []
    with subprocess.Popen(
        [*command, *key], cwd=tmp_path, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            url = json.loads(process.stdout.readline())["url"]
            process.send_signal(signal.SIGHUP)
            opened(url, BOSS).send("after") if flag else open_mailbox(f"{url}/jobs", str).send("a")
        finally:
            process.terminate()
    assert process.returncode == 0
