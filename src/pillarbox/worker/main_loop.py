"""MainLoop: answers requests from one mailbox into another, through an adapter.

The answer is sent before the request is acknowledged. Whatever the adapter raises becomes an
answer too. If the answer can't be sent the request rests for a minute, then for two, then four;
one that kills its process comes back when its lease ends, and dies by its mailbox's policy.
"""

from __future__ import annotations

import asyncio
import inspect
import math
import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Generic, Protocol, TypeVar, cast
from uuid import UUID

import msgspec

from pillarbox.clock import Clock, SystemClock
from pillarbox.codec import Codec, codec_for
from pillarbox.core.errors import InvalidParameterError, SerializationError
from pillarbox.mailbox.message import as_datetime
from pillarbox.mailbox.protocol import Mailbox
from pillarbox.worker.budget import Budget, Meter
from pillarbox.worker.dispatcher import Dispatcher
from pillarbox.worker.engine import Worker
from pillarbox.worker.exchange import (
    ErrorReport,
    MainLoopRequest,
    MainLoopResult,
    PromptResponse,
)
from pillarbox.worker.job import Job, LeaseLostError, Release, Verdict

RequestT = TypeVar("RequestT")
OutputT = TypeVar("OutputT")


class ProviderAdapter(Protocol[OutputT]):
    """Whoever knows how to answer: a model's API, or any function.

    It may be a coroutine function; then it is cut off when its time is over. A plain one asks
    `meter.seconds_left`; what it brings too late is refused.
    """

    def evaluate(
        self, prompt: Any, *, meter: Meter
    ) -> PromptResponse[OutputT] | Awaitable[PromptResponse[OutputT]]:
        """Answer a prompt; report to the meter what is spent on the way."""


@dataclass(frozen=True, slots=True)
class RequestAnswered:
    """An event: a result was sent."""

    request_id: UUID
    error: ErrorReport | None
    seconds: float


class MainLoop(Generic[RequestT, OutputT]):
    """Takes requests, has an adapter answer them, sends the results.

    A request that names a mailbox for its answer (`RequestClient` does) is answered there, any
    other in `responses`. Subclass it to make a prompt of a request.
    """

    def __init__(
        self,
        adapter: ProviderAdapter[OutputT],
        requests: Mailbox[MainLoopRequest[RequestT]],
        responses: Mailbox[MainLoopResult[OutputT]],
        *,
        budget: Budget | None = None,
        concurrency: int = 1,
        visibility_timeout: float = 60,
        wait_time_seconds: float = 20,
        dispatcher: Dispatcher | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._adapter = adapter
        self._requests = requests
        self._responses = responses
        self._budget = budget
        self._clock: Clock = clock or SystemClock()
        self._dispatcher = dispatcher or Dispatcher()
        self._options: dict[str, Any] = {
            "concurrency": concurrency,
            "visibility_timeout": visibility_timeout,
            "wait_time_seconds": wait_time_seconds,
        }
        self._lock = threading.Lock()
        self._worker: Worker[MainLoopRequest[RequestT]] | None = None
        self._stopped = False

    def prompt(self, request: RequestT) -> Any:
        """What the adapter is asked: the request itself, unless you say otherwise."""
        return request

    def run(self, *, max_iterations: int | None = None) -> None:
        """Answer requests until `shutdown`, or for so many receives."""
        handler: Callable[..., Any] = self._serve
        if inspect.iscoroutinefunction(self._adapter.evaluate):
            handler = self._serve_in_task
        with self._lock:
            if self._stopped:
                return
            self._worker = Worker(
                self._requests,
                handler,
                respond=self._respond,
                dispatcher=self._dispatcher,
                clock=self._clock,
                **self._options,
            )
        self._worker.run(max_receives=max_iterations)

    def shutdown(self) -> None:
        """Take no more requests; `run` returns when those at hand are answered."""
        with self._lock:
            self._stopped = True
            if self._worker is not None:
                self._worker.stop()

    def _serve(self, request: MainLoopRequest[RequestT], job: Job[Any]) -> MainLoopResult[OutputT]:
        meter = self._meter(request, job)
        try:
            meter.check()
            prompt = self.prompt(request.request)
            response = self._adapter.evaluate(prompt, meter=meter)
            return self._result(request, meter, cast("PromptResponse[OutputT]", response))
        except Exception as error:  # noqa: BLE001 - whatever it is, the client shall know
            return self._error(request, job, error)

    async def _serve_in_task(
        self, request: MainLoopRequest[RequestT], job: Job[Any]
    ) -> MainLoopResult[OutputT]:
        meter = self._meter(request, job)
        try:
            meter.check()
            prompt = self.prompt(request.request)
            left = meter.seconds_left
            async with asyncio.timeout(None if left == math.inf else left):
                answer = self._adapter.evaluate(prompt, meter=meter)
                response = await cast("Awaitable[PromptResponse[OutputT]]", answer)
            return self._result(request, meter, response)
        except Exception as error:  # noqa: BLE001 - whatever it is, the client shall know
            return self._error(request, job, error, meter)

    def _meter(self, request: MainLoopRequest[RequestT], job: Job[Any]) -> Meter:
        return Meter(request.budget or self._budget, request.deadline, self._now, job.check)

    def _result(
        self,
        request: MainLoopRequest[RequestT],
        meter: Meter,
        response: PromptResponse[OutputT],
    ) -> MainLoopResult[OutputT]:
        if meter.usage.tokens or meter.usage.cost:  # it reported while it ran
            meter.check()
        else:
            meter.spend(tokens=response.usage.tokens, cost=response.usage.cost)
        return MainLoopResult(request.request_id, response, completed_at=self._now())

    def _error(
        self,
        request: MainLoopRequest[RequestT],
        job: Job[Any],
        error: Exception,
        meter: Meter | None = None,
    ) -> MainLoopResult[OutputT]:
        if isinstance(error, Verdict):
            raise error
        if isinstance(error, LeaseLostError) or job.lost is not None:
            raise Release from error  # whoever has it now will answer
        if isinstance(error, TimeoutError) and meter is not None and meter.seconds_left <= 0:
            try:
                meter.check()
            except Exception as cause:  # noqa: BLE001 - says which of its bounds it was
                error = cause
        return MainLoopResult(
            request.request_id, error=ErrorReport.of(error), completed_at=self._now()
        )

    def _respond(self, job: Job[Any], result: MainLoopResult[OutputT]) -> None:
        try:
            self._send(job, result)
        except (SerializationError, InvalidParameterError) as error:
            result = MainLoopResult(result.request_id, error=ErrorReport.of(error))
            self._send(job, result)
        self._dispatcher.publish(
            RequestAnswered(result.request_id, result.error, job.seconds(self._clock.now()))
        )

    def _send(self, job: Job[Any], result: MainLoopResult[OutputT]) -> None:
        if job.message.reply_to is None:
            self._responses.send(result)
            return
        try:
            job.message.reply(result)
        except SerializationError:
            # A mailbox that is known by name only does not know the type of the output.
            job.message.reply(_plain(result))

    def _now(self) -> datetime:
        return as_datetime(self._clock.now() + self._clock.epoch_ns)


def _plain(result: MainLoopResult[Any]) -> Any:
    output: Any = Any if result.response is None else type(result.response.output)
    codec: Codec[Any] = codec_for(MainLoopResult[output])
    return msgspec.json.decode(codec.encode(result))
