"""Every parameter that is wrong is refused, with AWS's code and words, and nothing happens."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import pytest

from tests.broker.support import Client, Refused, text

LONG = "x" * 300


class Rule(NamedTuple):
    """What is asked on a fresh queue, and how AWS refuses it."""

    action: str
    parameters: dict[str, Any]
    code: str
    says: str
    fifo: bool = False


def _send(code: str, says: str, /, fifo: bool = False, **parameters: Any) -> Rule:
    return Rule("SendMessage", {"MessageBody": "a", **parameters}, code, says, fifo)


def _attribute(name: str, value: dict[str, str], says: str) -> Rule:
    return _send("InvalidParameterValue", says, MessageAttributes={name: value})


def _receive(code: str, says: str, /, fifo: bool = False, **parameters: Any) -> Rule:
    return Rule("ReceiveMessage", parameters, code, says, fifo)


def _set(name: str, value: str, code: str, says: str, /, fifo: bool = False) -> Rule:
    return Rule("SetQueueAttributes", {"Attributes": {name: value}}, code, says, fifo)


INVALID = "InvalidParameterValue"
RESERVED = "You can't use message attribute names beginning with 'AWS.' or 'Amazon'."
UNSUPPORTED = (
    "Invalid value for the parameter RedriveAllowPolicy. Reason: Amazon SQS can't create the "
    "redrive allow policy, as it\u2019s in an unsupported format."
)
NOT_FOR_TYPE = "not valid for this queue type"
CHARACTERS = "can only include alphanumeric and punctuation characters"

RULES = {
    "a message needs a body": _send("MissingParameter", "MessageBody", MessageBody=None),
    "an empty body is a missing one": _send("MissingParameter", "MessageBody", MessageBody=""),
    "a delay is not negative": _send(
        INVALID, "DelaySeconds must be >= 0 and <= 900", DelaySeconds=-1
    ),
    "a delay is at most 15 minutes": _send(
        INVALID, "Value 901 for parameter DelaySeconds", DelaySeconds=901
    ),
    "at most ten attributes": _send(
        INVALID,
        "[11] exceeds the allowed maximum [10]",
        MessageAttributes={f"n{i}": text("x") for i in range(11)},
    ),
    "an attribute has a type": _attribute(
        "n", {"StringValue": "x"}, "non-empty message attribute type"
    ),
    "an attribute has something": _attribute(
        "n",
        {"DataType": ""},
        "The message (user) attribute 'n' must contain a non-empty message attribute value.",
    ),
    "an attribute's type is known": _attribute("n", text("x", "Text"), "supported type prefixes"),
    "a type's prefix is case-sensitive": _attribute(
        "n", text("x", "string"), "supported type prefixes"
    ),
    "a type has at most 256 characters": _attribute(
        "n", text("x", "String." + LONG), "attribute type must be shorter than 256 bytes."
    ),
    "an attribute has a value": _attribute("n", {"DataType": "String"}, "non-empty value"),
    "an attribute's value is not empty": _attribute("n", text(""), "non-empty value"),
    "a number is a number": _attribute("n", text("three", "Number"), "Can't cast"),
    "a number is not NaN": _attribute("n", text("NaN", "Number"), "Can't cast"),
    "a number with a custom type is a number": _attribute(
        "n", text("x", "Number.int"), "Can't cast"
    ),
    "a binary uses BinaryValue": _attribute("n", text("x", "Binary"), "must use field 'Binary'"),
    "a string uses StringValue": _attribute(
        "n", {"DataType": "String", "BinaryValue": "AAAA"}, "must use field 'String'"
    ),
    "only one of the values is given": _attribute(
        "n",
        {"DataType": "String", "StringValue": "x", "BinaryValue": "AAAA"},
        "Message (user) attribute 'n' must have a single value.",
    ),
    "an attribute's name has at most 256 characters": _attribute(
        LONG, text("x"), "Message (user) attribute name must be shorter than 256 bytes."
    ),
    "an attribute's name has no blanks": _attribute(
        "a b",
        text("x"),
        "Invalid non-alphanumeric character was found in the message attribute name",
    ),
    "a sign is no letter": _attribute(
        "§", text("x"), "Invalid non-alphanumeric character was found in the message attribute name"
    ),
    "AWS. is reserved": _attribute("AWS.n", text("x"), RESERVED),
    "aws. is reserved in any case": _attribute("aWs.n", text("x"), RESERVED),
    "Amazon. is reserved": _attribute("amazon.n", text("x"), RESERVED),
    "a name does not start with a dot": _attribute(
        ".n", text("x"), "Message (user) attribute name must not begin with character '.'."
    ),
    "a name does not end with a dot": _attribute(
        "n.", text("x"), "Message (user) attribute name must not end with character '.'."
    ),
    "a name has no two dots in a row": _attribute(
        "n..m", text("x"), "Message (user) attribute name must not have successive '.' characters."
    ),
    "an attribute's text has allowed characters": _attribute(
        "n",
        text("\x01"),
        "Invalid binary character '#x1' was found in the message attribute 'n' value, the set of "
        "allowed characters is #x9 | #xA | #xD | #x20 to #xD7FF | #xE000 to #xFFFD | #x10000 to "
        "#x10FFFF",
    ),
    "a body has allowed characters": _send(
        "InvalidMessageContents",
        "Invalid binary character '#x1' was found in the message body",
        MessageBody="\x01",
    ),
    "an attribute has a name": _attribute(
        "", text("x"), "The request must contain non-empty message (user) attribute names."
    ),
    "only one system attribute may be set": _send(
        INVALID,
        "Message system attribute name 'SenderId' is invalid.",
        MessageSystemAttributes={"SenderId": text("x")},
    ),
    "the trace header is a string": _send(
        INVALID,
        "non-empty value of type 'String'",
        MessageSystemAttributes={"AWSTraceHeader": text("1", "Number")},
    ),
    "deduplication is for FIFO queues": _send(INVALID, NOT_FOR_TYPE, MessageDeduplicationId="d"),
    "a group on a standard queue has allowed characters": _send(
        INVALID, CHARACTERS, MessageGroupId="a b"
    ),
    "FIFO: a message has a group": _send(
        "MissingParameter", "MessageGroupId", fifo=True, MessageDeduplicationId="d"
    ),
    "FIFO: a message has a deduplication id": _send(
        INVALID,
        "ContentBasedDeduplication enabled or MessageDeduplicationId",
        fifo=True,
        MessageGroupId="g",
    ),
    "FIFO: a message has no delay of its own": _send(
        INVALID,
        NOT_FOR_TYPE,
        fifo=True,
        MessageGroupId="g",
        MessageDeduplicationId="d",
        DelaySeconds=1,
    ),
    "FIFO: a group has allowed characters": _send(
        INVALID, CHARACTERS, fifo=True, MessageGroupId="a b", MessageDeduplicationId="d"
    ),
    "FIFO: a group has at most 128 characters": _send(
        INVALID, CHARACTERS, fifo=True, MessageGroupId="x" * 129, MessageDeduplicationId="d"
    ),
    "FIFO: a deduplication id has allowed characters": _send(
        INVALID, CHARACTERS, fifo=True, MessageGroupId="g", MessageDeduplicationId="é"
    ),
    "FIFO: a deduplication id has at most 128 characters": _send(
        INVALID, CHARACTERS, fifo=True, MessageGroupId="g", MessageDeduplicationId="x" * 129
    ),
    "a receive of none is an error": _receive(
        INVALID, "Must be between 1 and 10", MaxNumberOfMessages=0
    ),
    "a receive of eleven is an error": _receive(
        INVALID, "Value 11 for parameter MaxNumberOfMessages", MaxNumberOfMessages=11
    ),
    "a wait is not negative": _receive(INVALID, "Must be >= 0 and <= 20", WaitTimeSeconds=-1),
    "a wait is at most 20 seconds": _receive(
        INVALID, "Value 21 for parameter WaitTimeSeconds", WaitTimeSeconds=21
    ),
    "a visibility timeout is not negative": _receive(
        INVALID, "VisibilityTimeout", VisibilityTimeout=-1
    ),
    "a visibility timeout is at most 12 hours": _receive(
        INVALID, "Reason: Must be >= 0 and <= 43200, if provided.", VisibilityTimeout=43_201
    ),
    "system attributes are known": _receive(
        "InvalidAttributeName", "Unknown Attribute Weight.", AttributeNames=["Weight"]
    ),
    "system attributes are known by their newer parameter": _receive(
        "InvalidAttributeName", "Unknown Attribute Weight.", MessageSystemAttributeNames=["Weight"]
    ),
    "attempts are for FIFO queues": _receive(INVALID, NOT_FOR_TYPE, ReceiveRequestAttemptId="a"),
    "FIFO: an attempt has at most 128 characters": _receive(
        INVALID, "ReceiveRequestAttemptId", fifo=True, ReceiveRequestAttemptId="x" * 129
    ),
    "a delete needs a handle": Rule("DeleteMessage", {}, "MissingParameter", "ReceiptHandle"),
    "a change needs a handle": Rule(
        "ChangeMessageVisibility", {"VisibilityTimeout": 1}, "MissingParameter", "ReceiptHandle"
    ),
    "a change needs a timeout": Rule(
        "ChangeMessageVisibility", {"ReceiptHandle": "x"}, "MissingParameter", "VisibilityTimeout"
    ),
    "a changed timeout is not negative": Rule(
        "ChangeMessageVisibility",
        {"ReceiptHandle": "x", "VisibilityTimeout": -1},
        INVALID,
        "VisibilityTimeout",
    ),
    "a changed timeout is at most 12 hours": Rule(
        "ChangeMessageVisibility",
        {"ReceiptHandle": "x", "VisibilityTimeout": 43_201},
        INVALID,
        "Value 43201 for parameter VisibilityTimeout is invalid. Reason: VisibilityTimeout must be "
        "an integer between 0 and 43200.",
    ),
    "attributes to get are known": Rule(
        "GetQueueAttributes",
        {"AttributeNames": ["Weight"]},
        "InvalidAttributeName",
        "Unknown Attribute Weight.",
    ),
    "attributes to set are named": Rule(
        "SetQueueAttributes", {"Attributes": {}}, "MissingParameter", "Attribute.Name"
    ),
    "attributes to set are known": _set(
        "Weight", "1", "InvalidAttributeName", "Unknown Attribute Weight."
    ),
    "computed attributes can't be set": _set(
        "QueueArn", "x", "InvalidAttributeName", "Unknown Attribute QueueArn."
    ),
    "VisibilityTimeout is at most 12 hours": _set(
        "VisibilityTimeout", "43201", "InvalidAttributeValue", "VisibilityTimeout"
    ),
    "VisibilityTimeout is not negative": _set(
        "VisibilityTimeout", "-1", "InvalidAttributeValue", "VisibilityTimeout"
    ),
    "VisibilityTimeout is whole": _set(
        "VisibilityTimeout", "1.5", "InvalidAttributeValue", "VisibilityTimeout"
    ),
    "VisibilityTimeout is a number": _set(
        "VisibilityTimeout", "long", "InvalidAttributeValue", "VisibilityTimeout"
    ),
    "VisibilityTimeout in other digits is none": _set(
        "VisibilityTimeout", "٣", "InvalidAttributeValue", "VisibilityTimeout"
    ),
    "VisibilityTimeout is at most 12 hours, however many zeros lead": _set(
        "VisibilityTimeout", "0" * 12 + "43201", "InvalidAttributeValue", "VisibilityTimeout"
    ),
    "VisibilityTimeout has no thousands of digits": _set(
        "VisibilityTimeout", "0" * 12 + "9" * 5_000, "InvalidAttributeValue", "VisibilityTimeout"
    ),
    "maxReceiveCount is at most 1,000, however many zeros lead": _set(
        "RedrivePolicy",
        '{"deadLetterTargetArn":"arn:aws:sqs:us-east-1:000000000000:a","maxReceiveCount":"0000000010000"}',
        INVALID,
        "valid values are from 1 to 1000",
    ),
    "maxReceiveCount has no thousands of digits": _set(
        "RedrivePolicy",
        '{"deadLetterTargetArn":"arn:aws:sqs:us-east-1:000000000000:a","maxReceiveCount":"000000001'
        + "9" * 5_000
        + '"}',
        INVALID,
        "valid values are from 1 to 1000",
    ),
    "a priority is at most 255, however many zeros lead": _attribute(
        "Pillarbox.Priority", {"DataType": "Number", "StringValue": "0000256"}, "from 0 to 255"
    ),
    "DelaySeconds is at most 15 minutes": _set(
        "DelaySeconds", "901", "InvalidAttributeValue", "DelaySeconds"
    ),
    "MaximumMessageSize is at least 1 KiB": _set(
        "MaximumMessageSize", "1023", "InvalidAttributeValue", "MaximumMessageSize"
    ),
    "MaximumMessageSize is at most 1 MiB": _set(
        "MaximumMessageSize", "1048577", "InvalidAttributeValue", "MaximumMessageSize"
    ),
    "MessageRetentionPeriod is at least a minute": _set(
        "MessageRetentionPeriod", "59", "InvalidAttributeValue", "MessageRetentionPeriod"
    ),
    "MessageRetentionPeriod is at most two weeks": _set(
        "MessageRetentionPeriod", "1209601", "InvalidAttributeValue", "MessageRetentionPeriod"
    ),
    "ReceiveMessageWaitTimeSeconds is at most 20": _set(
        "ReceiveMessageWaitTimeSeconds",
        "21",
        "InvalidAttributeValue",
        "ReceiveMessageWaitTimeSeconds",
    ),
    "KmsDataKeyReusePeriodSeconds is at least a minute": _set(
        "KmsDataKeyReusePeriodSeconds",
        "59",
        "InvalidAttributeValue",
        "KmsDataKeyReusePeriodSeconds",
    ),
    "SqsManagedSseEnabled is true or false": _set(
        "SqsManagedSseEnabled", "yes", "InvalidAttributeValue", "SqsManagedSseEnabled"
    ),
    "a policy is JSON": _set("Policy", "{", "InvalidAttributeValue", "Policy"),
    "a policy is a JSON object": _set("Policy", "[]", "InvalidAttributeValue", "Policy"),
    "a policy has a known version": _set(
        "Policy", '{"Version": "4532-10-17", "Statement": [{}]}', "InvalidAttributeValue", "Policy"
    ),
    "a policy has a statement": _set(
        "Policy", '{"Version": "2012-10-17", "Statement": []}', "InvalidAttributeValue", "Policy"
    ),
    "a policy has known fields": _set(
        "Policy",
        '{"Version": "2012-10-17", "Statement": [{}], "Colour": "red"}',
        "InvalidAttributeValue",
        "Policy",
    ),
    "a statement of a policy has known fields": _set(
        "Policy",
        '{"Version": "2012-10-17", "Statement": [{"Colour": "red"}]}',
        "InvalidAttributeValue",
        "Policy",
    ),
    "a policy has at most twenty statements": _set(
        "Policy",
        json.dumps({"Version": "2012-10-17", "Statement": [{"Sid": str(i)} for i in range(22)]}),
        "OverLimit",
        "22 statements were found in the submitted policy, max allowed is 20",
    ),
    "a policy has at most 8,192 bytes": _set(
        "Policy",
        json.dumps(
            {"Version": "2012-10-17", "Statement": [{"Sid": "é" * 4_096}]}, ensure_ascii=False
        ),
        "InvalidAttributeValue",
        "Policy. Reason: It has more than 8,192 bytes.",
    ),
    "there is one kind of encryption": Rule(
        "SetQueueAttributes",
        {"Attributes": {"SqsManagedSseEnabled": "true", "KmsMasterKeyId": "alias/aws/sqs"}},
        "InvalidAttributeName",
        "You can use one type of server-side encryption (SSE) at one time. You can either enable "
        "KMS SSE or SQS SSE.",
    ),
    "FifoQueue is not for a standard queue": _set(
        "FifoQueue", "true", "InvalidAttributeName", "Unknown Attribute FifoQueue."
    ),
    "a redrive policy is JSON": _set(
        "RedrivePolicy",
        "{",
        "InvalidAttributeValue",
        "Invalid value for the parameter RedrivePolicy. Reason: Redrive policy is not a valid JSON "
        "map.",
    ),
    "a redrive policy has a target": _set(
        "RedrivePolicy", '{"maxReceiveCount": 3}', INVALID, "deadLetterTargetArn"
    ),
    "a redrive policy has a count": _set(
        "RedrivePolicy", '{"deadLetterTargetArn": "x"}', INVALID, "maxReceiveCount"
    ),
    "a redrive policy has nothing else": _set(
        "RedrivePolicy",
        '{"deadLetterTargetArn": "x", "maxReceiveCount": 1, "colour": "red"}',
        INVALID,
        "Only following attributes are supported: [maxReceiveCount, deadLetterTargetArn].",
    ),
    "a dead-letter queue is named by an ARN": _set(
        "RedrivePolicy",
        '{"deadLetterTargetArn": "dummy", "maxReceiveCount": 42}',
        INVALID,
        "Reason: Invalid value for deadLetterTargetArn.",
    ),
    "dead letters go to a queue, not to a topic": _set(
        "RedrivePolicy",
        '{"deadLetterTargetArn": "arn:aws:sns:us-east-1:000000000000:t", "maxReceiveCount": 1}',
        INVALID,
        "Only SQS queues are valid resources for deadLetterTargetArn.",
    ),
    "a redrive count is at least 1": _set(
        "RedrivePolicy",
        '{"deadLetterTargetArn": "x", "maxReceiveCount": 0}',
        INVALID,
        "valid values are from 1 to 1000",
    ),
    "a redrive count is at most 1000": _set(
        "RedrivePolicy",
        '{"deadLetterTargetArn": "x", "maxReceiveCount": 1001}',
        INVALID,
        "valid values are from 1 to 1000",
    ),
    "a redrive count is whole": _set(
        "RedrivePolicy",
        '{"deadLetterTargetArn": "x", "maxReceiveCount": 1.5}',
        INVALID,
        "valid values are from 1 to 1000",
    ),
    "a dead-letter queue exists": _set(
        "RedrivePolicy",
        '{"deadLetterTargetArn": "arn:aws:sqs:us-east-1:000000000000:none", "maxReceiveCount": 1}',
        INVALID,
        "Dead letter target does not exist.",
    ),
    "a redrive allow policy names a permission": _set(
        "RedriveAllowPolicy", "{}", "InvalidAttributeValue", UNSUPPORTED
    ),
    "a redrive permission is known": _set(
        "RedriveAllowPolicy",
        '{"redrivePermission": "some"}',
        "InvalidAttributeValue",
        UNSUPPORTED,
    ),
    "byQueue names queues": _set(
        "RedriveAllowPolicy",
        '{"redrivePermission": "byQueue"}',
        INVALID,
        "When you specify the byQueue permission type, you must also specify one or more "
        "sourceQueueArns values.",
    ),
    "only byQueue names queues": _set(
        "RedriveAllowPolicy",
        '{"redrivePermission": "allowAll", "sourceQueueArns": ["x"]}',
        INVALID,
        "you must set redrivePermission to byQueue.",
    ),
    "at most ten sources are named": _set(
        "RedriveAllowPolicy",
        json.dumps({"redrivePermission": "byQueue", "sourceQueueArns": ["x"] * 11}),
        INVALID,
        "The maximum number of source queue ARNs you can specify is 10.",
    ),
    "ContentBasedDeduplication is for FIFO queues": _set(
        "ContentBasedDeduplication",
        "true",
        "InvalidAttributeName",
        "Unknown Attribute ContentBasedDeduplication.",
    ),
    "DeduplicationScope is for FIFO queues": _set(
        "DeduplicationScope",
        "queue",
        "InvalidAttributeName",
        "You can specify the DeduplicationScope only when FifoQueue is set to true.",
    ),
    "FIFO: DeduplicationScope is known": _set(
        "DeduplicationScope", "all", "InvalidAttributeValue", "DeduplicationScope", fifo=True
    ),
    "FIFO: FifoThroughputLimit is known": _set(
        "FifoThroughputLimit", "none", "InvalidAttributeValue", "FifoThroughputLimit", fifo=True
    ),
    "FIFO: FifoQueue can't be turned off": _set(
        "FifoQueue",
        "false",
        "InvalidAttributeValue",
        "Invalid value for the parameter FifoQueue. Reason: Modifying queue type is not supported.",
        fifo=True,
    ),
    "tags are named": Rule("TagQueue", {"Tags": {}}, "MissingParameter", "Tags"),
    "a tag's key has at most 128 characters": Rule(
        "TagQueue", {"Tags": {LONG: "x"}}, INVALID, "128"
    ),
    "a tag's value has at most 256 characters": Rule(
        "TagQueue", {"Tags": {"k": LONG}}, INVALID, "256"
    ),
    "aws: is reserved in tags": Rule("TagQueue", {"Tags": {"aws:k": "x"}}, INVALID, "aws:"),
    "at most fifty tags": Rule(
        "TagQueue", {"Tags": {f"k{i}": "x" for i in range(51)}}, INVALID, "Too many tags"
    ),
    "keys to untag are named": Rule("UntagQueue", {}, "MissingParameter", "TagKeys"),
    "a permission has a label": Rule(
        "AddPermission",
        {"AWSAccountIds": ["123456789012"], "Actions": ["SendMessage"]},
        "MissingParameter",
        "Label",
    ),
    "a label has allowed characters": Rule(
        "AddPermission",
        {"Label": "a b", "AWSAccountIds": ["123456789012"], "Actions": ["SendMessage"]},
        INVALID,
        "Label",
    ),
    "a permission names accounts": Rule(
        "AddPermission",
        {"Label": "l", "Actions": ["SendMessage"]},
        "MissingParameter",
        "AWSAccountIds",
    ),
    "an account has twelve digits": Rule(
        "AddPermission",
        {"Label": "l", "AWSAccountIds": ["12"], "Actions": ["SendMessage"]},
        INVALID,
        "PrincipalId",
    ),
    "a permission names actions": Rule(
        "AddPermission",
        {"Label": "l", "AWSAccountIds": ["123456789012"]},
        "MissingParameter",
        "Actions",
    ),
    "only some actions can be granted": Rule(
        "AddPermission",
        {"Label": "l", "AWSAccountIds": ["123456789012"], "Actions": ["CreateQueue"]},
        INVALID,
        "Only the queue owner",
    ),
    "actions that are granted are known": Rule(
        "AddPermission",
        {"Label": "l", "AWSAccountIds": ["123456789012"], "Actions": ["SendMessageBatch"]},
        INVALID,
        "Please refer to the appropriate WSDL for a list of valid actions.",
    ),
    "at most seven actions are granted at once": Rule(
        "AddPermission",
        {"Label": "l", "AWSAccountIds": ["123456789012"], "Actions": ["SendMessage"] * 8},
        "OverLimit",
        "7",
    ),
    "a permission to remove has a label": Rule("RemovePermission", {}, "MissingParameter", "Label"),
    "a permission to remove exists": Rule(
        "RemovePermission",
        {"Label": "none"},
        INVALID,
        "Value none for parameter Label is invalid. Reason: can't find label.",
    ),
    "a page of sources has at most 1000": Rule(
        "ListDeadLetterSourceQueues", {"MaxResults": 1_001}, INVALID, "MaxResults"
    ),
}


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_R55_what_AWS_refuses_is_refused(sqs: Client, rule: Rule) -> None:
    queue = sqs.create(fifo=rule.fifo)
    with pytest.raises(Refused) as refused:
        sqs(rule.action, QueueUrl=queue, **rule.parameters)
    assert refused.value.code == rule.code
    assert rule.says in refused.value.message
    assert refused.value.status == (403 if rule.code == "OverLimit" else 400)
    assert sqs.counts(queue) == (0, 0, 0)


WITHOUT_QUEUE = {
    "a queue has a name": ("CreateQueue", {}, "MissingParameter", "QueueName"),
    "a queue's name is not empty": (
        "CreateQueue",
        {"QueueName": ""},
        INVALID,
        "Queue name cannot be empty",
    ),
    "a name has allowed characters": ("CreateQueue", {"QueueName": "a b"}, INVALID, "alphanumeric"),
    "a name is no path": ("CreateQueue", {"QueueName": "../../etc"}, INVALID, "alphanumeric"),
    "a name has no dots": ("CreateQueue", {"QueueName": "a.b"}, INVALID, "alphanumeric"),
    "a name has at most 80 characters": (
        "CreateQueue",
        {"QueueName": "x" * 81},
        INVALID,
        "alphanumeric",
    ),
    "a FIFO queue's name ends with .fifo": (
        "CreateQueue",
        {"QueueName": "plain", "Attributes": {"FifoQueue": "true"}},
        INVALID,
        ".fifo",
    ),
    "only a FIFO queue's name ends with .fifo": (
        "CreateQueue",
        {"QueueName": "plain.fifo"},
        INVALID,
        "alphanumeric",
    ),
    "FifoQueue is not false": (
        "CreateQueue",
        {"QueueName": "x.fifo", "Attributes": {"FifoQueue": "false"}},
        "InvalidAttributeName",
        "Unknown Attribute FifoQueue.",
    ),
    "attributes are known when it is made": (
        "CreateQueue",
        {"QueueName": "x", "Attributes": {"Weight": "1"}},
        "InvalidAttributeName",
        "Unknown Attribute Weight.",
    ),
    "attributes are in range when it is made": (
        "CreateQueue",
        {"QueueName": "x", "Attributes": {"DelaySeconds": "901"}},
        "InvalidAttributeValue",
        "DelaySeconds",
    ),
    "tags are checked when it is made": (
        "CreateQueue",
        {"QueueName": "x", "tags": {"aws:k": "v"}},
        INVALID,
        "aws:",
    ),
    "a queue to look up has a name": ("GetQueueUrl", {}, "MissingParameter", "QueueName"),
    "a page has at least one": ("ListQueues", {"MaxResults": 0}, INVALID, "MaxResults"),
    "a page has at most 1000": ("ListQueues", {"MaxResults": 1_001}, INVALID, "MaxResults"),
    "a token is one of ours": (
        "ListQueues",
        {"MaxResults": 1, "NextToken": "%%%"},
        INVALID,
        "Invalid or expired next token.",
    ),
    "a FIFO queue's name has allowed characters": (
        "CreateQueue",
        {"QueueName": "a b.fifo", "Attributes": {"FifoQueue": "true"}},
        INVALID,
        "The name of a FIFO queue can only include alphanumeric characters",
    ),
    "a FIFO queue's name has at most 80 characters": (
        "CreateQueue",
        {"QueueName": "x" * 76 + ".fifo", "Attributes": {"FifoQueue": "true"}},
        INVALID,
        "must end with .fifo suffix and be 1 to 80 in length",
    ),
    "a token needs the size of a page": (
        "ListQueues",
        {"NextToken": "eA=="},
        INVALID,
        "MaxResults is a mandatory parameter when you provide a value for NextToken.",
    ),
    "a source is named by an ARN": (
        "StartMessageMoveTask",
        {"SourceArn": "orders"},
        INVALID,
        "SourceArn: arn:<partition>:<service>:<region>:<account-id>:<resource-id>",
    ),
    "moves are listed by the ARN of their source": (
        "ListMessageMoveTasks",
        {"SourceArn": ""},
        INVALID,
        "You must use this format to specify the SourceArn: arn:",
    ),
    "a move has a source": ("StartMessageMoveTask", {}, "MissingParameter", "SourceArn"),
    "a cancel has a handle": ("CancelMessageMoveTask", {}, "MissingParameter", "TaskHandle"),
    "a task handle is one of ours": (
        "CancelMessageMoveTask",
        {"TaskHandle": "%"},
        INVALID,
        "Value for parameter TaskHandle is invalid.",
    ),
    "moves are listed by their source": (
        "ListMessageMoveTasks",
        {},
        "MissingParameter",
        "SourceArn",
    ),
}


@pytest.mark.parametrize("rule", WITHOUT_QUEUE.values(), ids=WITHOUT_QUEUE)
def test_R55_what_AWS_refuses_without_a_queue_is_refused(sqs: Client, rule: Any) -> None:
    action, parameters, code, says = rule
    before = sqs("ListQueues")
    with pytest.raises(Refused) as refused:
        sqs(action, **parameters)
    assert (refused.value.status, refused.value.code) == (400, code)
    assert says in refused.value.message
    assert sqs("ListQueues") == before


ON_A_QUEUE = [
    "DeleteQueue", "GetQueueAttributes", "SetQueueAttributes", "SendMessage", "SendMessageBatch",
    "ReceiveMessage", "DeleteMessage", "DeleteMessageBatch", "ChangeMessageVisibility",
    "ChangeMessageVisibilityBatch", "PurgeQueue", "TagQueue", "UntagQueue", "ListQueueTags",
    "AddPermission", "RemovePermission", "ListDeadLetterSourceQueues",
]  # fmt: skip


@pytest.mark.parametrize("action", ON_A_QUEUE)
def test_R55_an_action_on_a_queue_needs_its_URL(sqs: Client, action: str) -> None:
    with pytest.raises(Refused) as refused:
        sqs(action)
    assert (refused.value.status, refused.value.code) == (400, "MissingParameter")
    assert "QueueUrl" in refused.value.message


@pytest.mark.parametrize("action", ON_A_QUEUE)
def test_R55_a_missing_queue_is_a_400_in_each_protocols_words(sqs: Client, action: str) -> None:
    with pytest.raises(Refused) as refused:
        sqs(action, QueueUrl=f"{sqs.url}/000000000000/nowhere")
    assert refused.value.status == 400
    assert refused.value.code == "AWS.SimpleQueueService.NonExistentQueue"
    ending = "." if sqs.protocol == "json" else " for this wsdl version."
    assert refused.value.message == f"The specified queue does not exist{ending}"
