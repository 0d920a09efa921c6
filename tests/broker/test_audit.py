"""The audit log: administrative actions of every interface, allowed or not, and nothing else."""

from __future__ import annotations

import json
import stat
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError

from pillarbox import MailboxError, open_mailbox
from pillarbox.backup import BrokerFiles, backup
from pillarbox.broker import Broker
from pillarbox.broker.audit import ACTIONS
from pillarbox.broker.config import Config, Key
from pillarbox.broker.rights import NATIVE
from pillarbox.broker.sqs import ACTIONS as SQS_ACTIONS
from pillarbox.core.errors import InvalidParameterError
from pillarbox.dashboard import mount
from pillarbox.mailbox.broker import admin
from pillarbox.testing.broker import running_broker

KEYS = (Key("boss", "s"), Key("clerk", "s", queues=("orders",), actions=("send", "receive")))
NOT_ADMINISTRATIVE = {
    "SendMessage", "SendMessageBatch", "ReceiveMessage", "DeleteMessage", "DeleteMessageBatch",
    "ChangeMessageVisibility", "ChangeMessageVisibilityBatch", "ListQueues", "GetQueueUrl",
    "GetQueueAttributes", "ListDeadLetterSourceQueues", "ListQueueTags", "ListMessageMoveTasks",
    "GetSessionToken",
}  # fmt: skip


def entries(path: Path) -> list[tuple[Any, ...]]:
    read = [json.loads(line) for line in path.read_text().splitlines()]
    return [
        tuple(each[name] for name in ("key", "action", "queue", "by", "allowed")) for each in read
    ]


def signed(url: str, key: str) -> str:
    return url.replace("://", f"://{key}:s@")


def sqs(url: str, key: str) -> Any:
    return boto3.client(
        "sqs", endpoint_url=url, region_name="us-east-1",
        aws_access_key_id=key, aws_secret_access_key="s",
    )  # fmt: skip


def test_R59_every_action_is_administrative_or_not() -> None:
    """A new action without a decision fails here."""
    known = {action.name for action in SQS_ACTIONS.values()} | {name for name, _ in NATIVE.values()}
    assert known == ACTIONS | NOT_ADMINISTRATIVE
    assert not ACTIONS & NOT_ADMINISTRATIVE


def test_R59_administrative_actions_are_noted_with_their_key(tmp_path: Path) -> None:
    log = tmp_path / "audit"
    with running_broker(keys=KEYS, audit_log=str(log)) as url:
        boss = sqs(url, "boss")
        queue = boss.create_queue(QueueName="orders")["QueueUrl"]
        boss.send_message(QueueUrl=queue, MessageBody="a")
        boss.purge_queue(QueueUrl=queue)
        with pytest.raises(ClientError, match="AccessDenied"):
            sqs(url, "clerk").purge_queue(QueueUrl=queue)
        box = open_mailbox(f"{signed(url, 'clerk')}/orders", str, create=False)
        box.send("b")
        box.receive()[0].acknowledge()
        with pytest.raises(MailboxError):
            box.purge()
        admin.pause_queue(f"{signed(url, 'boss')}/orders", paused=True)
        admin.delete_queue(f"{signed(url, 'boss')}/orders")
        url.broker.reload(lambda: Config(keys=KEYS[:1]))

    assert entries(log) == [
        ("boss", "CreateQueue", "orders", "sqs", True),
        ("boss", "PurgeQueue", "orders", "sqs", True),
        ("clerk", "PurgeQueue", "orders", "sqs", False),
        ("clerk", "PurgeQueue", "orders", "pillarbox", False),
        ("boss", "pause", "orders", "pillarbox", True),
        ("boss", "DeleteQueue", "orders", "pillarbox", True),
        ("", "ReloadKeys", "", "signal", True),
    ]
    assert stat.S_IMODE(log.stat().st_mode) == 0o600


def test_R59_a_backup_is_noted_and_allowed_to_a_key_with_full_access(tmp_path: Path) -> None:
    log = tmp_path / "audit"
    data = str(tmp_path / "data")
    with running_broker(data, keys=KEYS, audit_log=str(log)) as url:
        backup(BrokerFiles(signed(url, "boss")), str(tmp_path / "copy"))
        with pytest.raises(MailboxError, match="requires a key with full access"):
            backup(BrokerFiles(signed(url, "clerk")), str(tmp_path / "stolen"))

    assert entries(log) == [
        ("boss", "Backup", "", "pillarbox", True),
        ("clerk", "Backup", "", "pillarbox", False),
    ]


def test_R59_the_dashboard_is_noted_too(tmp_path: Path) -> None:
    log = tmp_path / "audit"
    with running_broker(audit_log=str(log)) as url:
        token = mount(url.broker)._token
        for path, name in (("queues", "tea"), ("queues/tea/pause", "")):
            form = urllib.parse.urlencode({"token": token, "name": name}).encode()
            urllib.request.urlopen(f"{url}/dashboard/{path}", form)

    assert entries(log) == [
        ("", "create", "tea", "dashboard", True),
        ("", "pause", "tea", "dashboard", True),
    ]


def test_R59_a_log_that_was_moved_away_is_opened_again(tmp_path: Path) -> None:
    log = tmp_path / "audit"
    with running_broker(audit_log=str(log)) as url:
        open_mailbox(f"{url}/a", str)
        log.rename(tmp_path / "audit.1")
        assert url.broker.audit is not None
        url.broker.audit.reopen()
        open_mailbox(f"{url}/b", str)

    assert ("", "CreateQueue", "a", "pillarbox", True) in entries(tmp_path / "audit.1")
    assert ("", "CreateQueue", "b", "pillarbox", True) in entries(log)


def test_R59_if_the_file_can_not_be_opened_again_the_old_one_stays(tmp_path: Path) -> None:
    log = tmp_path / "logs" / "audit"
    log.parent.mkdir()
    with running_broker(keys=KEYS, audit_log=str(log)) as url:
        log.parent.rename(tmp_path / "moved")
        assert url.broker.reload(lambda: Config(keys=KEYS[:1]))
        with open_mailbox(f"{signed(url, 'boss')}/orders", str):
            pass

    found = entries(tmp_path / "moved" / "audit")
    assert ("", "ReloadKeys", "", "signal", True) in found
    assert ("boss", "CreateQueue", "orders", "pillarbox", True) in found


def test_R59_a_log_on_a_full_disk_can_be_opened_again_elsewhere(tmp_path: Path) -> None:
    log = tmp_path / "audit"
    log.symlink_to("/dev/full")
    with running_broker(keys=KEYS, audit_log=str(log)) as url:
        with pytest.raises(MailboxError), open_mailbox(f"{signed(url, 'boss')}/orders", str):
            pass
        log.unlink()
        assert url.broker.reload(lambda: Config(keys=KEYS[:1]))
        with open_mailbox(f"{signed(url, 'boss')}/orders", str):
            pass
    found = entries(log)
    assert found[0] == ("", "ReloadKeys", "", "signal", True)
    assert ("boss", "CreateQueue", "orders", "pillarbox", True) in found


def test_R59_a_file_that_can_not_be_written_is_told_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(InvalidParameterError, match="audit_log"):
        Broker(Config(data=None, audit_log=str(tmp_path / "missing" / "audit")))
