"""Tags and permissions. Permissions admit other accounts; within an account, keys decide."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from pillarbox.broker import shapes
from pillarbox.broker.attributes import POLICY_BYTES_MAX, STATEMENTS_MAX
from pillarbox.broker.errors import SqsError, invalid, invalid_value, missing
from pillarbox.broker.policies import GRANTABLE
from pillarbox.broker.queue import BrokerQueue
from pillarbox.broker.sqs_request import Result, SqsRequest
from pillarbox.core.sqs_limits import TAGS_MAX

ACTIONS_MAX = 7
_OWNERS = frozenset(
    (
        "AddPermission",
        "CreateQueue",
        "DeleteQueue",
        "ListQueues",
        "ListQueueTags",
        "RemovePermission",
        "SetQueueAttributes",
        "TagQueue",
        "UntagQueue",
    )
)
_BAD_TAG = "Tag keys must be between 1 and 128 characters in length."
_LABEL = re.compile(r"[A-Za-z0-9_-]{1,80}\Z")
_ACCOUNT = re.compile(r"\d{12}\Z", re.ASCII)


def check_tags(queue: str, tags: Mapping[str, str], already: Mapping[str, str]) -> None:
    for name, value in tags.items():
        if not 1 <= len(name) <= 128:
            raise invalid(_BAD_TAG)
        if len(value) > 256:
            raise invalid("Tag values must be between 0 and 256 characters in length.")
        if name.lower().startswith("aws:"):
            raise invalid("Tag keys must not start with aws:, which is reserved.")
    if len(already.keys() | tags.keys()) > TAGS_MAX:
        raise invalid(f"Too many tags added for queue {queue}.")


async def tag_queue(request: SqsRequest, params: shapes.TagQueue) -> Result:
    queue = await request.queue(params.QueueUrl, fresh=True)
    if not params.Tags:
        raise missing("Tags")
    check_tags(queue.name, params.Tags, queue.tags)
    await request.broker.queues.change(queue, tags={**queue.tags, **params.Tags})
    return None


async def untag_queue(request: SqsRequest, params: shapes.UntagQueue) -> Result:
    queue = await request.queue(params.QueueUrl, fresh=True)
    if params.TagKeys is None:
        raise missing("TagKeys")
    if not params.TagKeys or "" in params.TagKeys:
        raise invalid(_BAD_TAG)
    gone = set(params.TagKeys)
    kept = {name: value for name, value in queue.tags.items() if name not in gone}
    await request.broker.queues.change(queue, tags=kept)
    return None


async def list_queue_tags(request: SqsRequest, params: shapes.ListQueueTags) -> Result:
    queue = await request.queue(params.QueueUrl, fresh=True)
    return {"Tags": queue.tags} if queue.tags else {}


async def add_permission(request: SqsRequest, params: shapes.AddPermission) -> Result:
    queue = await request.queue(params.QueueUrl, fresh=True)
    label = _label(params.Label)
    if params.AWSAccountIds is None:
        raise missing("AWSAccountIds")
    if not params.Actions:
        raise missing("Actions")
    if not params.AWSAccountIds:
        raise invalid_value("PrincipalId", "[]", "Unable to verify.")
    if len(params.Actions) > ACTIONS_MAX:
        raise SqsError(
            "OverLimit",
            f"{len(params.Actions)} Actions were found, maximum allowed is {ACTIONS_MAX}.",
        )
    for account in params.AWSAccountIds:
        if not _ACCOUNT.match(account):
            raise invalid_value("PrincipalId", account, "Unable to verify.")
    for action in params.Actions:
        if action != "*" and action not in GRANTABLE:
            reason = "Only the queue owner is allowed to invoke this action."
            if action not in _OWNERS:
                reason = "Please refer to the appropriate WSDL for a list of valid actions."
            raise invalid_value("ActionName", f"SQS:{action}", reason)
    resource = request.broker.names.arn(queue.name)
    where = resource.partition(":sqs:")[0]
    principals = [f"{where}:iam::{account}:root" for account in params.AWSAccountIds]
    actions = [f"SQS:{action}" for action in params.Actions]
    statement = {
        "Sid": label,
        "Effect": "Allow",
        "Principal": {"AWS": principals if len(principals) > 1 else principals[0]},
        "Action": actions if len(actions) > 1 else actions[0],
        "Resource": resource,
    }
    policy = _policy(request, queue)
    statements = policy["Statement"]
    if statement in statements:
        return None
    if any(each.get("Sid") == label for each in statements):
        raise invalid_value("Label", label, "Already exists.")
    if len(statements) >= STATEMENTS_MAX:
        found = len(statements) + 1
        raise SqsError(
            "OverLimit", f"{found} Statements were found, maximum allowed is {STATEMENTS_MAX}."
        )
    await _keep_policy(request, queue, {**policy, "Statement": [*statements, statement]})
    return None


async def remove_permission(request: SqsRequest, params: shapes.RemovePermission) -> Result:
    queue = await request.queue(params.QueueUrl, fresh=True)
    label = _label(params.Label)
    policy = _policy(request, queue)
    kept = [each for each in policy["Statement"] if each.get("Sid") != label]
    if len(kept) == len(policy["Statement"]):
        where = " on existing policy" if kept else ""
        raise invalid_value("Label", label, f"can't find label{where}.")
    await _keep_policy(request, queue, {**policy, "Statement": kept} if kept else None)
    return None


def _label(label: str | None) -> str:
    if not label:
        raise missing("Label")
    if not _LABEL.match(label):
        raise invalid_value(
            "Label",
            label,
            "Label can only include alphanumeric characters, hyphens, or underscores. 1 to 80 in "
            "length.",
        )
    return label


def _policy(request: SqsRequest, queue: BrokerQueue) -> dict[str, Any]:
    value = queue.given.get("Policy")
    policy: dict[str, Any] = msgspec.json.decode(value) if value else {}
    policy.setdefault("Version", "2008-10-17")
    policy.setdefault("Id", f"{request.broker.names.arn(queue.name)}/SQSDefaultPolicy")
    statements = policy.get("Statement", [])
    policy["Statement"] = statements if isinstance(statements, list) else [statements]
    return policy


async def _keep_policy(
    request: SqsRequest, queue: BrokerQueue, policy: dict[str, Any] | None
) -> None:
    given = {name: value for name, value in queue.given.items() if name != "Policy"}
    if policy is not None:
        value = msgspec.json.encode(policy)
        if len(value) > POLICY_BYTES_MAX:
            raise SqsError(
                "OverLimit", f"The policy would have more than {POLICY_BYTES_MAX:,} bytes."
            )
        given["Policy"] = value.decode()
    await request.broker.queues.change(queue, attributes=given)
