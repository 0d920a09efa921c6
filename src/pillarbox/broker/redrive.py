"""Which queue may be the dead-letter queue of another, as SQS has it."""

from __future__ import annotations

from pillarbox.broker.attributes import allow_policy
from pillarbox.broker.errors import invalid_value
from pillarbox.broker.queue import FIFO_SUFFIX, BrokerQueue


def check_target(
    policy: str, source: str, source_arn: str, target: BrokerQueue | None, *, is_target: bool
) -> BrokerQueue:
    """The queue that a redrive policy names, if it may be used; `is_target`: so is the source."""
    problem = None
    if target is None:
        problem = "Dead letter target does not exist."
    elif target.fifo != source.endswith(FIFO_SUFFIX):
        problem = "Dead-letter queue must be same type of queue as the source."
    elif target.name == source:
        return target
    elif target.dead_letters is not None:
        problem = "Dead-letter queue must not have a dead-letter queue of its own."
    elif not _allows(target, source_arn):
        problem = "Queue does not have permission to use the dead-letter queue."
    elif is_target:
        problem = "A dead-letter queue must not have a dead-letter queue of its own."
    if problem is not None or target is None:
        raise invalid_value("RedrivePolicy", policy, problem or "")
    return target


def _allows(target: BrokerQueue, source_arn: str) -> bool:
    value = target.given.get("RedriveAllowPolicy")
    if not value:
        return True
    policy = allow_policy(value)
    if policy.redrivePermission == "byQueue":
        return source_arn in (policy.sourceQueueArns or ())
    return policy.redrivePermission == "allowAll"
