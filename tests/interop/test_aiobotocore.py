"""aiobotocore: a crowd of long polls and a crowd of senders on one event loop."""

from __future__ import annotations

import asyncio
from typing import Any

from aiobotocore.config import AioConfig
from aiobotocore.session import get_session

POLLS = 40


def test_R56_forty_parked_polls_get_one_message_each(endpoint: str) -> None:
    async def scenario() -> list[str]:
        config = AioConfig(max_pool_connections=2 * POLLS)
        session = get_session()
        async with session.create_client("sqs", endpoint_url=endpoint, config=config) as sqs:
            url = (await sqs.create_queue(QueueName="crowd"))["QueueUrl"]

            async def consume() -> str:
                while True:
                    answer = await sqs.receive_message(QueueUrl=url, WaitTimeSeconds=20)
                    for message in answer.get("Messages", []):
                        handle = message["ReceiptHandle"]
                        await sqs.delete_message(QueueUrl=url, ReceiptHandle=handle)
                        body: str = message["Body"]
                        return body

            polls = [asyncio.create_task(consume()) for _ in range(POLLS)]
            sends = (sqs.send_message(QueueUrl=url, MessageBody=str(n)) for n in range(POLLS))
            await asyncio.gather(*sends)
            return await asyncio.gather(*polls)

    bodies = asyncio.run(asyncio.wait_for(scenario(), 60))
    assert sorted(map(int, bodies)) == list(range(POLLS))


def test_R57_what_a_cancelled_poll_would_have_got_is_received_by_another(endpoint: str) -> None:
    async def scenario() -> dict[str, Any]:
        async with get_session().create_client("sqs", endpoint_url=endpoint) as sqs:
            url = (await sqs.create_queue(QueueName="left-early"))["QueueUrl"]
            for _ in range(10):
                poll = asyncio.create_task(sqs.receive_message(QueueUrl=url, WaitTimeSeconds=20))
                await asyncio.sleep(0.01)
                poll.cancel()
            await sqs.send_message(QueueUrl=url, MessageBody="a")
            answer = await sqs.receive_message(
                QueueUrl=url, WaitTimeSeconds=20, MessageSystemAttributeNames=["All"]
            )
            (message,) = answer["Messages"]
            found: dict[str, Any] = message
            return found

    message = asyncio.run(asyncio.wait_for(scenario(), 60))
    assert message["Attributes"]["ApproximateReceiveCount"] == "1"
