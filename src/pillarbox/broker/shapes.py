"""The parameters of each action as typed structs, with SQS's names, for both protocols.

Actions check for missing parameters themselves, because SQS has its own errors for these.
"""

from __future__ import annotations

from msgspec import Struct


class Attribute(Struct, gc=False):
    """The value of a message attribute."""

    DataType: str | None = None
    StringValue: str | None = None
    BinaryValue: bytes | None = None
    StringListValues: list[str] | None = None  # part of the API, but SQS refuses it
    BinaryListValues: list[bytes] | None = None


class OfQueue(Struct, gc=False):
    """An action on a queue; the URL may be left out if it is posted to the queue's path."""

    QueueUrl: str | None = None


class CreateQueue(Struct, gc=False):
    QueueName: str | None = None
    Attributes: dict[str, str] | None = None
    tags: dict[str, str] | None = None
    Tags: dict[str, str] | None = None

    def __post_init__(self) -> None:
        self.Attributes = _without_blanks(self.Attributes)


class DeleteQueue(OfQueue, gc=False):
    pass


class ListQueues(Struct, gc=False):
    QueueNamePrefix: str | None = None
    NextToken: str | None = None
    MaxResults: int | None = None


class GetQueueUrl(Struct, gc=False):
    QueueName: str | None = None
    QueueOwnerAWSAccountId: str | None = None


class GetQueueAttributes(OfQueue, gc=False):
    AttributeNames: list[str] | None = None


class SetQueueAttributes(OfQueue, gc=False):
    Attributes: dict[str, str] | None = None

    def __post_init__(self) -> None:
        self.Attributes = _without_blanks(self.Attributes)


class SendMessage(OfQueue, gc=False):
    MessageBody: str | None = None
    DelaySeconds: int | None = None
    MessageAttributes: dict[str, Attribute] | None = None
    MessageSystemAttributes: dict[str, Attribute] | None = None
    MessageDeduplicationId: str | None = None
    MessageGroupId: str | None = None


class SendEntry(SendMessage, gc=False):
    Id: str | None = None


class SendMessageBatch(OfQueue, gc=False):
    Entries: list[SendEntry] | None = None


class ReceiveMessage(OfQueue, gc=False):
    AttributeNames: list[str] | None = None
    MessageSystemAttributeNames: list[str] | None = None
    MessageAttributeNames: list[str] | None = None
    MaxNumberOfMessages: int | None = None
    VisibilityTimeout: int | None = None
    WaitTimeSeconds: int | None = None
    ReceiveRequestAttemptId: str | None = None


class DeleteMessage(OfQueue, gc=False):
    ReceiptHandle: str | None = None


class DeleteEntry(Struct, gc=False):
    Id: str | None = None
    ReceiptHandle: str | None = None


class DeleteMessageBatch(OfQueue, gc=False):
    Entries: list[DeleteEntry] | None = None


class ChangeMessageVisibility(OfQueue, gc=False):
    ReceiptHandle: str | None = None
    VisibilityTimeout: int | None = None


class ChangeEntry(Struct, gc=False):
    Id: str | None = None
    ReceiptHandle: str | None = None
    VisibilityTimeout: int | None = None


class ChangeMessageVisibilityBatch(OfQueue, gc=False):
    Entries: list[ChangeEntry] | None = None


class PurgeQueue(OfQueue, gc=False):
    pass


class TagQueue(OfQueue, gc=False):
    Tags: dict[str, str] | None = None


class UntagQueue(OfQueue, gc=False):
    TagKeys: list[str] | None = None


class ListQueueTags(OfQueue, gc=False):
    pass


class AddPermission(OfQueue, gc=False):
    Label: str | None = None
    AWSAccountIds: list[str] | None = None
    Actions: list[str] | None = None


class RemovePermission(OfQueue, gc=False):
    Label: str | None = None


class ListDeadLetterSourceQueues(OfQueue, gc=False):
    NextToken: str | None = None
    MaxResults: int | None = None


class StartMessageMoveTask(Struct, gc=False):
    SourceArn: str | None = None
    DestinationArn: str | None = None
    MaxNumberOfMessagesPerSecond: int | None = None


class CancelMessageMoveTask(Struct, gc=False):
    TaskHandle: str | None = None


class ListMessageMoveTasks(Struct, gc=False):
    SourceArn: str | None = None
    MaxResults: int | None = None


def _without_blanks(attributes: dict[str, str] | None) -> dict[str, str] | None:
    """Strip blanks that some tools write around names."""
    return None if attributes is None else {x.strip(): value for x, value in attributes.items()}
