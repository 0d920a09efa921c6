"""Access policies: whether a queue's policy lets another account use it.

Within an account, the broker's keys decide. Conditions and negated elements (`NotPrincipal`) are
not supported: a statement with one never allows, but may deny.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Any, Final

import msgspec

# What a policy can allow; a batch needs the right of its single form.
GRANTABLE: Final = frozenset(
    (
        "SendMessage",
        "ReceiveMessage",
        "DeleteMessage",
        "ChangeMessageVisibility",
        "GetQueueAttributes",
        "GetQueueUrl",
        "ListDeadLetterSourceQueues",
        "PurgeQueue",
    )
)


@lru_cache(4096)
def allows(policy: str | None, account: str, user: str, action: str, arn: str) -> bool:
    """Whether a policy lets a key (`user`) of another account do this to the queue."""
    needed = action.removesuffix("Batch")
    if not policy or needed not in GRANTABLE:
        return False
    iam = f"{arn.partition(':sqs:')[0]}:iam::{account}"
    names = ("*", account, f"{iam}:root", f"{iam}:user/{user}")
    found: dict[str, Any] = msgspec.json.decode(policy)
    allowed = False
    for statement in _list(found.get("Statement")):
        denies = statement.get("Effect") != "Allow"
        if _is_about(statement, names, f"sqs:{needed}".lower(), arn, if_unsure=denies):
            if denies:
                return False
            allowed = True
    return allowed


def allows_anything(policy: str | None, account: str, user: str, arn: str) -> bool:
    """Whether a policy lets a key of another account do something, so that it knows the queue."""
    return any(allows(policy, account, user, action, arn) for action in GRANTABLE)


def _is_about(
    statement: dict[str, Any], names: tuple[str, ...], action: str, arn: str, *, if_unsure: bool
) -> bool:
    unclear = ("Condition", "NotPrincipal", "NotAction", "NotResource")
    if any(statement.get(field) for field in unclear) and not if_unsure:
        return False
    principals = statement.get("Principal", "*" if statement.get("NotPrincipal") else ())
    if isinstance(principals, dict):
        principals = principals.get("AWS")
    if not any(each in names for each in _list(principals)):
        return False
    actions = _list(statement.get("Action", "*" if statement.get("NotAction") else ()))
    resources = _list(statement.get("Resource", "*"))
    return _matches([str(each).lower() for each in actions], action) and _matches(resources, arn)


def _matches(patterns: list[Any], text: str) -> bool:
    return any(fnmatchcase(text, str(each).replace("[", "[[]")) for each in patterns)


def _list(value: Any) -> list[Any]:
    if value is None:
        return []
    return list(value) if isinstance(value, list | tuple) else [value]
