"""A scenario for a botocore that still speaks SQS's query protocol; run by its own Python."""

import json
import os

import botocore
import botocore.session
from botocore.exceptions import ClientError


def main() -> None:
    session = botocore.session.get_session()
    sqs = session.create_client("sqs", endpoint_url=os.environ["ENDPOINT"])
    assert sqs.meta.service_model.metadata["protocol"] == "query", botocore.__version__
    url = sqs.create_queue(QueueName="old", Attributes={"VisibilityTimeout": "45"})["QueueUrl"]
    assert sqs.get_queue_url(QueueName="old")["QueueUrl"] == url
    one_message(sqs, url)
    batches(sqs, url)
    errors(sqs, url)
    dead_letters(sqs, url)
    fifo(sqs)
    sqs.tag_queue(QueueUrl=url, Tags={"team": "post & parcels"})
    assert sqs.list_queue_tags(QueueUrl=url)["Tags"] == {"team": "post & parcels"}
    sqs.delete_queue(QueueUrl=url)
    print("done")


def one_message(sqs, url) -> None:
    body = "line one\r\nline two <&\"'> grüße 🏤"
    sent = sqs.send_message(
        QueueUrl=url,
        MessageBody=body,
        MessageAttributes={
            "colour": {"DataType": "String", "StringValue": "röt"},
            "data": {"DataType": "Binary", "BinaryValue": b"\x00\xff"},
        },
    )
    (got,) = sqs.receive_message(
        QueueUrl=url, AttributeNames=["All"], MessageAttributeNames=["All"], WaitTimeSeconds=5
    )["Messages"]
    assert got["Body"] == body, got
    assert got["MessageAttributes"]["data"]["BinaryValue"] == b"\x00\xff", got
    assert got["MD5OfMessageAttributes"] == sent["MD5OfMessageAttributes"]
    assert got["Attributes"]["ApproximateReceiveCount"] == "1", got
    handle = got["ReceiptHandle"]
    sqs.change_message_visibility(QueueUrl=url, ReceiptHandle=handle, VisibilityTimeout=0)
    (again,) = sqs.receive_message(QueueUrl=url, WaitTimeSeconds=5)["Messages"]
    sqs.delete_message(QueueUrl=url, ReceiptHandle=again["ReceiptHandle"])
    assert "Messages" not in sqs.receive_message(QueueUrl=url)


def batches(sqs, url) -> None:
    entries = [{"Id": f"n{n}", "MessageBody": str(n)} for n in range(3)]
    answer = sqs.send_message_batch(
        QueueUrl=url, Entries=[*entries, {"Id": "bad", "MessageBody": "b", "DelaySeconds": 901}]
    )
    assert [each["Id"] for each in answer["Successful"]] == ["n0", "n1", "n2"], answer
    assert [(each["Id"], each["SenderFault"]) for each in answer["Failed"]] == [("bad", True)]
    got = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10, WaitTimeSeconds=5)["Messages"]
    assert sorted(each["Body"] for each in got) == ["0", "1", "2"], got
    handles = [{"Id": str(n), "ReceiptHandle": m["ReceiptHandle"]} for n, m in enumerate(got)]
    assert len(sqs.delete_message_batch(QueueUrl=url, Entries=handles)["Successful"]) == 3


def errors(sqs, url) -> None:
    expect("AWS.SimpleQueueService.NonExistentQueue", sqs.get_queue_url, QueueName="missing")
    expect("ReceiptHandleIsInvalid", sqs.delete_message, QueueUrl=url, ReceiptHandle="garbage")
    expect("QueueAlreadyExists", sqs.create_queue, QueueName="old",
           Attributes={"VisibilityTimeout": "46"})  # fmt: skip
    expect("InvalidAttributeName", sqs.get_queue_attributes, QueueUrl=url, AttributeNames=["Nope"])


def expect(code, call, **params) -> None:
    found = None
    try:
        call(**params)
    except ClientError as error:
        found = error.response["Error"]["Code"]
    assert found == code, found


def dead_letters(sqs, url) -> None:
    dead = sqs.create_queue(QueueName="old-dead")["QueueUrl"]
    found = sqs.get_queue_attributes(QueueUrl=dead, AttributeNames=["QueueArn"])["Attributes"]
    policy = json.dumps({"deadLetterTargetArn": found["QueueArn"], "maxReceiveCount": 1})
    sqs.set_queue_attributes(QueueUrl=url, Attributes={"RedrivePolicy": policy})
    assert sqs.list_dead_letter_source_queues(QueueUrl=dead)["queueUrls"] == [url]
    sqs.send_message(QueueUrl=url, MessageBody="poison")
    sqs.receive_message(QueueUrl=url, VisibilityTimeout=0, WaitTimeSeconds=5)
    assert "Messages" not in sqs.receive_message(QueueUrl=url)
    (letter,) = sqs.receive_message(QueueUrl=dead, WaitTimeSeconds=5)["Messages"]
    assert letter["Body"] == "poison", letter


def fifo(sqs) -> None:
    url = sqs.create_queue(QueueName="old.fifo", Attributes={"FifoQueue": "true"})["QueueUrl"]
    for number in ("1", "2", "3"):
        sqs.send_message(
            QueueUrl=url, MessageBody=number, MessageGroupId="g", MessageDeduplicationId=number
        )
    got = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10, WaitTimeSeconds=5)["Messages"]
    assert [each["Body"] for each in got] == ["1", "2", "3"], got


if __name__ == "__main__":
    main()
