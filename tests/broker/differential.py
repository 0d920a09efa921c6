"""The same requests at random to two brokers, whose answers must be the same."""

from __future__ import annotations

import json
import random
from itertools import count
from typing import Any

from pillarbox.testing import FakeClock
from tests.broker.support import Client, Refused

STEPS = 120
ALL = {"AttributeNames": ["All"], "MessageAttributeNames": ["All"]}
SHOWN = ("ApproximateReceiveCount", "MessageGroupId", "MessageDeduplicationId")
_names = count()
_TIMES = [("VisibilityTimeout", ["3", "10", "40"]), ("DelaySeconds", ["0", "0", "2"])]
_SCOPES = [
    ("ContentBasedDeduplication", ["true", "false"]),
    ("DeduplicationScope", ["messageGroup", "queue"]),
]
_SETTINGS = {False: _TIMES, True: [*_TIMES, *_SCOPES]}


class Pair:
    """A broker that keeps its queues in memory, and another one."""

    def __init__(self, own: Client, other: Client, *clocks: FakeClock) -> None:
        self._random = random.Random(0)
        self._clocks = clocks
        self._clients = own, other
        self._handles: dict[str, list[tuple[str, str]]] = {}
        self._bodies = count()
        self.story: list[str] = []
        prefix = f"pair{next(_names)}"
        self._dead = self._create(f"{prefix}-dead")
        self._failing = self._create(f"{prefix}-failing", dead_letters=self._dead)
        self._tenants = self._create(f"{prefix}-tenants")
        self._fifo = self._create(f"{prefix}.fifo", FifoQueue="true")
        self._queues = [self._failing, self._tenants, self._fifo, self._dead]

    def _create(self, name: str, dead_letters: str | None = None, **attributes: str) -> str:
        for client in self._clients:
            given = {"VisibilityTimeout": "10", **attributes}
            if dead_letters is not None:
                target = client.arn(dead_letters)
                policy = {"deadLetterTargetArn": target, "maxReceiveCount": 3}
                given["RedrivePolicy"] = json.dumps(policy)
            client("CreateQueue", QueueName=name, Attributes=given)
        self._handles[name] = []
        return name

    def use(self, other: Client) -> None:
        """Go on with another client of the other broker."""
        self._clients = self._clients[0], other

    def step(self, seed: str) -> None:
        """One request at random; its two answers must be the same."""
        self._random.seed(seed)
        verbs = [self._send] * 4 + [self._receive] * 4 + [self._delete, self._change] * 2
        verbs += [self._delete_some, self._change_some, self._pass_time, self._pass_time]
        verbs += [self._configure, self._purge]
        self._random.choice(verbs)()
        self.compare_counts()

    def _ask(self, action: str, **parameters: Any) -> list[dict[str, Any]]:
        """The answers of both, after they were compared."""
        answers: list[dict[str, Any]] = []
        for side, client in enumerate(self._clients):
            try:
                answers.append(client(action, **_of_side(side, parameters)))
            except Refused as error:
                answers.append({"refused": (error.status, error.code)})
        told = [_comparable(answer) for answer in answers]
        self.story.append(f"{action} {parameters} -> {told[0]}")
        assert told[0] == told[1], "\n".join([*self.story, f"by the other: {told[1]}"])
        return answers

    def _message(self, queue: str) -> dict[str, Any]:
        chosen, message = self._random, {"MessageBody": f"m{next(self._bodies)}"}
        options: dict[str, Any] = {}
        if chosen.random() < 0.2:
            options["MessageAttributes"] = {"a": {"DataType": "String", "StringValue": "x"}}
        if queue == self._fifo:
            options["MessageGroupId"] = chosen.choice("abc")
            if chosen.random() < 0.9:
                options["MessageDeduplicationId"] = f"d{chosen.randrange(40)}"
        elif chosen.random() < 0.3:
            options["DelaySeconds"] = chosen.choice((0, 3, 12, 901))
        elif queue == self._tenants:
            options["MessageGroupId"] = chosen.choice("xy")
        return {**message, **options}

    def _send(self) -> None:
        queue = self._random.choice(self._queues[:3])
        if self._random.random() < 0.5:
            self._ask("SendMessage", QueueUrl=queue, **self._message(queue))
            return
        number = self._random.randint(1, 4)
        entries = [{"Id": str(at), **self._message(queue)} for at in range(number)]
        self._ask("SendMessageBatch", QueueUrl=queue, Entries=entries)

    def _receive(self) -> None:
        queue = self._random.choice(self._queues)
        timeout = self._random.choice(({}, {}, {"VisibilityTimeout": 0}, {"VisibilityTimeout": 5}))
        # What dies takes no place in an answer of a broker's own store, and may elsewhere.
        most = 1 if queue == self._failing else self._random.choice((1, 2, 10))
        answers = self._ask(
            "ReceiveMessage", QueueUrl=queue, MaxNumberOfMessages=most, **timeout, **ALL
        )
        both = zip(*(answer.get("Messages", []) for answer in answers), strict=True)
        self._handles[queue] = [
            *self._handles[queue],
            *((own["ReceiptHandle"], shared["ReceiptHandle"]) for own, shared in both),
        ]

    def _handles_of(self, queue: str, most: int) -> list[tuple[str, str]]:
        """Any that were ever given, the late ones more often; garbage now and then."""
        given = self._handles[queue]
        recent = given[-4:] if self._random.random() < 0.7 else given
        found = self._random.sample(recent, min(len(recent), most))
        return [("garbage", "garbage")] if self._random.random() < 0.05 else found

    def _delete(self) -> None:
        queue = self._random.choice(self._queues)
        for handle in self._handles_of(queue, 1):
            self._ask("DeleteMessage", QueueUrl=queue, ReceiptHandle=handle)

    def _change(self) -> None:
        queue = self._random.choice(self._queues)
        seconds = self._random.choice((0, 0, 5, 20, 43_201))
        for handle in self._handles_of(queue, 1):
            self._ask(
                "ChangeMessageVisibility",
                QueueUrl=queue,
                ReceiptHandle=handle,
                VisibilityTimeout=seconds,
            )

    def _delete_some(self) -> None:
        self._each_of_some("DeleteMessageBatch")

    def _change_some(self) -> None:
        self._each_of_some(
            "ChangeMessageVisibilityBatch", VisibilityTimeout=self._random.choice((0, 5))
        )

    def _each_of_some(self, action: str, **options: Any) -> None:
        queue = self._random.choice(self._queues)
        entries = [
            {"Id": str(at), "ReceiptHandle": handle, **options}
            for at, handle in enumerate(self._handles_of(queue, 4))
        ]
        self._ask(action, QueueUrl=queue, Entries=entries)

    def _purge(self) -> None:
        if self._random.random() < 0.2:
            self._ask("PurgeQueue", QueueUrl=self._random.choice(self._queues))

    def _pass_time(self) -> None:
        seconds = self._random.choice((1, 2, 4, 6, 11, 301))
        self.story.append(f"{seconds} s pass")
        for clock in self._clocks:
            clock.advance(seconds)

    def _configure(self) -> None:
        queue = self._random.choice(self._queues)
        name, values = self._random.choice(_SETTINGS[queue == self._fifo])
        self._ask(
            "SetQueueAttributes",
            QueueUrl=queue,
            Attributes={name: self._random.choice(values)},
        )

    def compare_counts(self) -> None:
        counts = [[client.counts(queue) for queue in self._queues] for client in self._clients]
        assert counts[0] == counts[1], "\n".join([*self.story, f"counts {self._queues}: {counts}"])


def _of_side(side: int, value: Any) -> Any:
    """What one of the two is asked: a pair is a value for each."""
    if isinstance(value, tuple):
        return value[side]
    if isinstance(value, dict):
        return {key: _of_side(side, each) for key, each in value.items()}
    return [_of_side(side, each) for each in value] if isinstance(value, list) else value


def _comparable(answer: dict[str, Any]) -> object:
    """Without ids and handles, which no two stores have in common."""
    if "Messages" in answer:
        return [
            (message["Body"], {key: message["Attributes"].get(key) for key in SHOWN})
            for message in answer["Messages"]
        ]
    if "refused" in answer:
        return answer
    entries = {
        name: sorted((each["Id"], each.get("Code")) for each in answer[name])
        for name in ("Successful", "Failed")
        if name in answer
    }
    return entries or sorted(answer)
