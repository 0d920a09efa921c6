"""Request and response over two mailboxes, on any backend.

python examples/01_request_response/main.py                          # in memory
python examples/01_request_response/main.py file:./data/             # on disk
python examples/01_request_response/main.py http://127.0.0.1:9324/   # through a broker
python examples/01_request_response/main.py redis://localhost/       # through Redis
"""

from __future__ import annotations

import sys
import threading
import time
from dataclasses import dataclass
from typing import Any

from pillarbox import DeadLetterPolicy, Mailbox, RequestClient, open_mailbox
from pillarbox.worker import (
    Budget,
    Deadline,
    MainLoop,
    MainLoopRequest,
    MainLoopResult,
    Meter,
    PromptResponse,
    RequestFailedError,
    Usage,
)


@dataclass(frozen=True)
class Question:
    text: str


@dataclass(frozen=True)
class Answer:
    words: int


Requests = Mailbox[MainLoopRequest[Question]]
Responses = Mailbox[MainLoopResult[Answer]]


class WordCounter:
    """An adapter. A real one would ask a model; this one counts words, at a token each."""

    def evaluate(self, prompt: Any, *, meter: Meter) -> PromptResponse[Answer]:
        words = prompt.text.split()
        if not words:
            raise ValueError("there is nothing to count")
        for _ in words:
            meter.spend(tokens=1)  # raises when the budget is used up
        return PromptResponse(Answer(len(words)), Usage(tokens=len(words)))


def ask_by_hand(requests: Requests, responses: Responses, text: str) -> Answer:
    """Send a request, and look for its answer among those of others."""
    request = MainLoopRequest(Question(text), deadline=Deadline.after(30))
    requests.send(request)
    give_up_at = time.monotonic() + 30
    while time.monotonic() < give_up_at:
        for message in responses.receive(wait_time_seconds=5):
            if message.body.request_id == request.request_id:
                message.acknowledge()
                return message.body.unwrap().output
            message.release()  # another's: back it goes, and no delivery is counted
    raise TimeoutError(f"no answer to {request.request_id} within 30 seconds")


def main(base: str) -> None:
    policy = DeadLetterPolicy(max_deliveries=3)  # what kills its worker three times is dead
    requests = open_mailbox(f"{base}questions", MainLoopRequest[Question], dead_letters=policy)
    responses = open_mailbox(f"{base}answers", MainLoopResult[Answer])
    loop = MainLoop(WordCounter(), requests, responses, concurrency=4)
    worker = threading.Thread(target=loop.run)
    worker.start()
    try:
        print("by hand:", ask_by_hand(requests, responses, "how many words are these").words)

        # The same with a client, whose answers come to a mailbox of its own.
        url = f"{base}questions"
        client = RequestClient.open(url, MainLoopRequest[Question], MainLoopResult[Answer])
        with client:
            result = client.ask(MainLoopRequest(Question("and these")), timeout=30)
            print("by a client:", result.unwrap().output.words)

            failed = client.ask(MainLoopRequest(Question("")), timeout=30)
            try:
                failed.unwrap()
            except RequestFailedError as error:
                print("an error:", error)

            thrifty = MainLoopRequest(Question("far too many words"), budget=Budget(max_tokens=2))
            print("a budget:", client.ask(thrifty, timeout=30).error.message)
    finally:
        loop.shutdown()
        worker.join()
        requests.close()
        responses.close()


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "memory:")
