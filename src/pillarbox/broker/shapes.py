"""What each action takes, as typed structs with SQS's own names; both protocols fill them.

What is required is checked by the actions: SQS has its own words for what is missing.
"""

from __future__ import annotations

from msgspec import Struct


class Attribute(Struct):
    """The value of a message attribute."""

    DataType: str | None = None
    StringValue: str | None = None
    BinaryValue: bytes | None = None


class OfQueue(Struct):
    """Actions on a queue name it by its URL; on a queue's own path they need not."""

    QueueUrl: str | None = None


class CreateQueue(Struct):
    QueueName: str | None = None
    Attributes: dict[str, str] | None = None
    tags: dict[str, str] | None = None
    Tags: dict[str, str] | None = None


class DeleteQueue(OfQueue):
    pass


class ListQueues(Struct):
    QueueNamePrefix: str | None = None
    NextToken: str | None = None
    MaxResults: int | None = None


class GetQueueUrl(Struct):
    QueueName: str | None = None
    QueueOwnerAWSAccountId: str | None = None


class GetQueueAttributes(OfQueue):
    AttributeNames: list[str] | None = None


class SetQueueAttributes(OfQueue):
    Attributes: dict[str, str] | None = None


class SendMessage(OfQueue):
    MessageBody: str | None = None
    DelaySeconds: int | None = None
    MessageAttributes: dict[str, Attribute] | None = None
    MessageSystemAttributes: dict[str, Attribute] | None = None
    MessageDeduplicationId: str | None = None
    MessageGroupId: str | None = None


class SendEntry(SendMessage):
    Id: str | None = None


class SendMessageBatch(OfQueue):
    Entries: list[SendEntry] | None = None


class ReceiveMessage(OfQueue):
    AttributeNames: list[str] | None = None
    MessageSystemAttributeNames: list[str] | None = None
    MessageAttributeNames: list[str] | None = None
    MaxNumberOfMessages: int | None = None
    VisibilityTimeout: int | None = None
    WaitTimeSeconds: int | None = None
    ReceiveRequestAttemptId: str | None = None


class DeleteMessage(OfQueue):
    ReceiptHandle: str | None = None


class DeleteEntry(Struct):
    Id: str | None = None
    ReceiptHandle: str | None = None


class DeleteMessageBatch(OfQueue):
    Entries: list[DeleteEntry] | None = None


class ChangeMessageVisibility(OfQueue):
    ReceiptHandle: str | None = None
    VisibilityTimeout: int | None = None


class ChangeEntry(Struct):
    Id: str | None = None
    ReceiptHandle: str | None = None
    VisibilityTimeout: int | None = None


class ChangeMessageVisibilityBatch(OfQueue):
    Entries: list[ChangeEntry] | None = None


class PurgeQueue(OfQueue):
    pass


class TagQueue(OfQueue):
    Tags: dict[str, str] | None = None


class UntagQueue(OfQueue):
    TagKeys: list[str] | None = None


class ListQueueTags(OfQueue):
    pass


class AddPermission(OfQueue):
    Label: str | None = None
    AWSAccountIds: list[str] | None = None
    Actions: list[str] | None = None


class RemovePermission(OfQueue):
    Label: str | None = None


class ListDeadLetterSourceQueues(OfQueue):
    NextToken: str | None = None
    MaxResults: int | None = None


class StartMessageMoveTask(Struct):
    SourceArn: str | None = None
    DestinationArn: str | None = None
    MaxNumberOfMessagesPerSecond: int | None = None


class CancelMessageMoveTask(Struct):
    TaskHandle: str | None = None


class ListMessageMoveTasks(Struct):
    SourceArn: str | None = None
    MaxResults: int | None = None
