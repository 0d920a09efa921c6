"""boto3 and a mailbox on one queue of a broker.

python examples/20_broker_with_boto3/main.py                          # with a broker of its own
python examples/20_broker_with_boto3/main.py http://127.0.0.1:9324    # with yours
"""

from __future__ import annotations

import sys

import boto3

from pillarbox import open_mailbox
from pillarbox.testing.broker import running_broker


def main(url: str) -> None:
    sqs = boto3.client(
        "sqs",
        endpoint_url=url,
        region_name="us-east-1",
        aws_access_key_id="any",
        aws_secret_access_key="any",  # noqa: S106 - a broker without keys accepts any
    )
    queue = sqs.create_queue(QueueName="orders-of-boto3")["QueueUrl"]
    sqs.send_message(QueueUrl=queue, MessageBody="tea, sent by boto3")

    with open_mailbox(f"{url}/orders-of-boto3", str) as orders:
        (message,) = orders.receive(wait_time_seconds=5)
        print("the mailbox has", message.body)
        message.acknowledge()
        orders.send("tea, sent by the mailbox", priority=9)

    (received,) = sqs.receive_message(QueueUrl=queue, WaitTimeSeconds=5)["Messages"]
    print("boto3 has", received["Body"])
    sqs.delete_message(QueueUrl=queue, ReceiptHandle=received["ReceiptHandle"])
    sqs.delete_queue(QueueUrl=queue)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(sys.argv[1])
    else:
        with running_broker() as address:
            main(str(address))
