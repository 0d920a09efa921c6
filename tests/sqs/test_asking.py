"""R21: a client's own queue for answers on SQS ends with the client."""

from __future__ import annotations

import threading
from uuid import uuid4

from pillarbox import RequestClient, open_mailbox
from pillarbox.mailbox.answers import is_reply_queue
from pillarbox.mailbox.sqs import list_queues


def reply_queues(endpoint: str) -> list[str]:
    found = (url.rpartition("/")[2] for url in list_queues(f"sqs+{endpoint}"))
    return [name for name in found if is_reply_queue(name)]


def test_R21_a_client_that_closes_leaves_no_queue_behind(endpoint: str) -> None:
    url = f"sqs+{endpoint}/questions-{uuid4().hex[:8]}"
    with open_mailbox(url, int, create=True) as box:

        def work() -> None:
            for request in box.receive(wait_time_seconds=20):
                request.reply(request.body + 1)
                request.acknowledge()

        with RequestClient.open(url, int, int) as client:
            worker = threading.Thread(target=work)
            worker.start()
            assert client.ask(4, timeout=20) == 5
            worker.join()
            assert reply_queues(endpoint) == [client._replies.name]
        assert reply_queues(endpoint) == []


def test_R21_an_answer_that_comes_after_its_client_has_closed_is_dropped(endpoint: str) -> None:
    url = f"sqs+{endpoint}/questions-{uuid4().hex[:8]}"
    with open_mailbox(url, int, create=True) as box:
        with RequestClient.open(url, int, int) as client:
            client._requests.send(4, reply_to=client._replies.name)
            (request,) = box.receive(wait_time_seconds=20)
        assert request.reply(5) == ""
        assert request.acknowledge() is True
    assert reply_queues(endpoint) == []
