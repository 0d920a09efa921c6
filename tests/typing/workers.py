"""What the type checker knows of workers; `make lint` has mypy read this, nothing runs it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, assert_type

from pillarbox import InMemoryMailbox, RequestClient
from pillarbox.worker import (
    Dispatcher,
    Job,
    MainLoop,
    MainLoopRequest,
    MainLoopResult,
    Meter,
    PromptResponse,
    TaskEnded,
    Worker,
    worker,
)


@dataclass
class Order:
    tea: str


@worker("memory:orders", retries=5)
def pack(order: Order, colour: str = "red") -> int:
    return len(order.tea)


assert_type(pack(Order("assam")), int)
assert_type(pack.send(Order("assam"), priority=9), str)
pack("assam")  # type: ignore[arg-type]  # the wrapped function keeps its signature

orders = InMemoryMailbox("orders", Order)
assert_type(Worker(orders, pack), Worker[Order])


def handle(order: Order, job: Job[Order]) -> None:
    assert_type(job.body, Order)
    assert_type(job.message.body, Order)


class Adapter:
    def evaluate(self, prompt: Any, *, meter: Meter) -> PromptResponse[int]:
        return PromptResponse(1)


class AsyncAdapter:
    async def evaluate(self, prompt: Any, *, meter: Meter) -> PromptResponse[int]:
        return PromptResponse(1)


requests = InMemoryMailbox("requests", MainLoopRequest[Order])
results = InMemoryMailbox("results", MainLoopResult[int])
assert_type(MainLoop(Adapter(), requests, results), MainLoop[Order, int])
assert_type(MainLoop(AsyncAdapter(), requests, results), MainLoop[Order, int])

client = RequestClient(requests, results)
assert_type(client.ask(MainLoopRequest(Order("assam")), timeout=1).unwrap().output, int)

Dispatcher().subscribe(TaskEnded, lambda event: assert_type(event, TaskEnded))
