"""One SQS queue: find or create it, set its redrive policy, read its counts, send messages.

SQS accepts or refuses each message of a batch individually. Messages that failed on the server's
side are sent again; those that still fail are reported individually.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pillarbox.core.errors import (
    InvalidParameterError,
    MailboxConnectionError,
    MailboxError,
    MailboxFullError,
    UnknownOutcomeError,
)
from pillarbox.core.sqs_limits import BATCH_BYTES_MAX, BATCH_ENTRIES_MAX
from pillarbox.mailbox.protocol import DeadLetterPolicy, Stats
from pillarbox.mailbox.runner import Verb
from pillarbox.mailbox.sqs.address import QueueAddress, from_arn
from pillarbox.mailbox.sqs.call import ATTEMPTS_MAX, ask, pause
from pillarbox.mailbox.sqs.errors import BatchError, from_code, says_stale
from pillarbox.mailbox.sqs.wire import Entry

_COUNTS = {
    "ready": "ApproximateNumberOfMessages",
    "scheduled": "ApproximateNumberOfMessagesDelayed",
    "in_flight": "ApproximateNumberOfMessagesNotVisible",
}


class SqsQueue:
    """A queue by its address; `url` and the dead-letter queue are set when it is opened."""

    def __init__(
        self, address: QueueAddress, *, create: bool = False, policy: DeadLetterPolicy | None = None
    ) -> None:
        self.address = address
        self.name = address.name
        self.fifo = address.fifo
        self.url = address.queue_url or ""
        self.dead: SqsQueue | None = None
        self.opened = False
        self._create = create
        self._policy = policy
        if policy is not None:
            self.dead = SqsQueue(self._address_of_dead(policy), create=create)

    def open(self) -> Verb[None]:
        """Find or create the queue; set its redrive policy, or read the existing one."""
        yield from self.find()
        found = (yield from self.attributes("RedrivePolicy")).get("RedrivePolicy")
        known = json.loads(found) if found else None
        if self.dead is None and known is not None:
            self.dead = SqsQueue(from_arn(known["deadLetterTargetArn"]))
        if self.dead is not None:
            yield from self.dead.find()
            if self._policy is not None and not self._is_set(known):
                yield from self._set_policy(self.dead, self._policy.max_deliveries)
            self.dead.opened = True
        self.opened = True

    def find(self) -> Verb[None]:
        """Look up the queue's URL."""
        if self._create:
            attributes = {"FifoQueue": "true"} if self.fifo else {}
            answer = yield from ask("create_queue", QueueName=self.name, Attributes=attributes)
            self.url = answer["QueueUrl"]
        elif not self.url:
            self.url = yield from url_of(self.address)

    def ask(self, operation: str, *, owner: Any = None, **params: Any) -> Verb[Any]:
        """Call SQS about this queue."""
        return (yield from ask(operation, owner=owner, QueueUrl=self.url, **params))

    def ask_batch(
        self, operation: str, entries: Mapping[int, Entry], done: dict[int, Any]
    ) -> Verb[dict[int, Any]]:
        """Call SQS for a batch of messages, by position; add the results to `done`.

        Retries entries that failed on the server's side. Returns those that SQS refused.
        """
        refused: dict[int, Any] = {}
        left = list(entries)
        for attempt in range(1, ATTEMPTS_MAX + 1):
            asked = [{"Id": str(position), **entries[position]} for position in left]
            answer = yield from self.ask(f"{operation}_batch", Entries=asked)
            done |= {int(each["Id"]): each for each in answer.get("Successful", [])}
            failed = {int(each["Id"]): each for each in answer.get("Failed", [])}
            again = [
                n for n, each in failed.items() if not (each["SenderFault"] or says_stale(each))
            ]
            left = again if attempt < ATTEMPTS_MAX else []
            refused |= {n: each for n, each in failed.items() if n not in left}
            if not left:
                break
            yield pause(attempt)
        return refused

    def send(self, entry: Entry) -> Verb[str]:
        answer = yield from self.ask("send_message", **entry)
        message_id: str = answer["MessageId"]
        return message_id

    def send_many(self, entries: Sequence[tuple[Entry, int]]) -> Verb[list[str]]:
        """Send entries, given with their sizes; return ids in order, or raise `BatchError`."""
        sent: dict[int, Any] = {}  # responses of SQS, by position
        failed: dict[int, MailboxError] = {}
        for batch in _batches(entries):
            if failed and self.fifo:  # later messages must not overtake failed ones
                not_tried = MailboxConnectionError(
                    f"not sent to queue {self.name!r}, because a message before it failed; "
                    "send it again"
                )
                failed.update(dict.fromkeys(batch, not_tried))
                continue
            try:
                asked = {position: entries[position][0] for position in batch}
                refused = yield from self.ask_batch("send_message", asked, sent)
                for position, each in refused.items():
                    text = each.get("Message", "")
                    failed[position] = from_code(each["Code"], text, "send_message", self.name)
            except (MailboxConnectionError, MailboxFullError, UnknownOutcomeError) as error:
                if not sent:
                    raise
                failed.update((position, error) for position in batch if position not in sent)
        ids = {position: sent[position]["MessageId"] for position in sorted(sent)}
        if failed:
            raise BatchError(self.name, ids, failed)
        return list(ids.values())

    def attributes(self, *names: str) -> Verb[dict[str, str]]:
        answer = yield from self.ask("get_queue_attributes", AttributeNames=list(names))
        found: dict[str, str] = answer.get("Attributes", {})
        return found

    def stats(self) -> Verb[Stats]:
        """Return SQS's approximate counts; SQS does not report ages."""
        found = yield from self.attributes(*_COUNTS.values())
        counts = {state: int(found.get(name, 0)) for state, name in _COUNTS.items()}
        dead = 0
        if self.dead is not None:
            dead = (yield from self.dead.stats()).total
        return Stats(**counts, dead=dead, oldest_age_seconds=None)

    def _address_of_dead(self, policy: DeadLetterPolicy) -> QueueAddress:
        name = policy.queue_of(self.name)
        if name == self.name:
            raise InvalidParameterError("dead_letters", name, "the name of another queue")
        return QueueAddress(name, self.address.region, self.address.account, self.address.endpoint)

    def _is_set(self, known: dict[str, Any] | None) -> bool:
        """Return whether the policy is already set: not every user may write it."""
        if known is None or self.dead is None or self._policy is None:
            return False
        same_queue = from_arn(known["deadLetterTargetArn"]).name == self.dead.name
        return same_queue and int(known["maxReceiveCount"]) == self._policy.max_deliveries

    def _set_policy(self, dead: SqsQueue, max_deliveries: int) -> Verb[None]:
        theirs = yield from dead.attributes("QueueArn", "RedrivePolicy")
        if theirs.get("RedrivePolicy"):
            raise InvalidParameterError(
                "dead_letters", dead.name, "a queue without a redrive policy of its own"
            )
        sources = yield from self.ask("list_dead_letter_source_queues")
        if sources.get("queueUrls"):
            raise InvalidParameterError(
                "dead_letters", dead.name, f"None: {self.name!r} is a dead-letter queue"
            )
        policy = {"deadLetterTargetArn": theirs["QueueArn"], "maxReceiveCount": max_deliveries}
        written = {"RedrivePolicy": json.dumps(policy)}
        yield from self.ask("set_queue_attributes", Attributes=written)


def _batches(entries: Sequence[tuple[Entry, int]]) -> Iterator[list[int]]:
    """Yield the positions of the messages of each batch."""
    batch: list[int] = []
    total = 0
    for position, (_, size) in enumerate(entries):
        if batch and (len(batch) == BATCH_ENTRIES_MAX or total + size > BATCH_BYTES_MAX):
            yield batch
            batch, total = [], 0
        batch.append(position)
        total += size
    if batch:
        yield batch


def url_of(address: QueueAddress) -> Verb[str]:
    """Look up a queue's URL."""
    owner: dict[str, Any] = {"QueueOwnerAWSAccountId": address.account} if address.account else {}
    answer = yield from ask("get_queue_url", QueueName=address.name, **owner)
    url: str = answer["QueueUrl"]
    return url
