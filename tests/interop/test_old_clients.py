"""Clients that speak SQS's query protocol: a botocore of 2023, and the AWS CLI of then."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
Aws = Callable[..., Any]


def test_R55_an_old_botocore_speaks_the_query_protocol(
    old_python: Path, environment: dict[str, str]
) -> None:
    done = subprocess.run(
        [str(old_python), str(HERE / "old_botocore.py")],
        env=environment,
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr


@pytest.fixture
def aws(old_python: Path, environment: dict[str, str]) -> Aws:
    command = [str(old_python.parent / "aws"), "--endpoint-url", environment["ENDPOINT"]]

    def run(action: str, *arguments: str) -> Any:
        done = subprocess.run(
            [*command, "--output", "json", "sqs", action, *arguments],
            env=environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(done.stderr.strip())
        return json.loads(done.stdout or "null")

    return run


def test_R55_the_aws_cli_sends_receives_and_deletes(aws: Aws) -> None:
    url = aws("create-queue", "--queue-name", "shell", "--attributes", "DelaySeconds=0")["QueueUrl"]
    attributes = '{"colour": {"DataType": "String", "StringValue": "red"}}'
    aws("send-message", "--queue-url", url, "--message-body", "tea for two",
        "--message-attributes", attributes)  # fmt: skip
    (got,) = aws("receive-message", "--queue-url", url, "--wait-time-seconds", "5",
                 "--message-attribute-names", "All")["Messages"]  # fmt: skip
    assert got["Body"] == "tea for two"
    assert got["MessageAttributes"]["colour"]["StringValue"] == "red"
    aws("delete-message", "--queue-url", url, "--receipt-handle", got["ReceiptHandle"])
    left = aws("get-queue-attributes", "--queue-url", url, "--attribute-names", "All")["Attributes"]
    assert left["ApproximateNumberOfMessages"] == "0"
    assert left["ApproximateNumberOfMessagesNotVisible"] == "0"


def test_R55_the_aws_cli_shows_the_broker_s_errors(aws: Aws) -> None:
    with pytest.raises(RuntimeError, match="NonExistentQueue"):
        aws("get-queue-url", "--queue-name", "no-such-queue")
