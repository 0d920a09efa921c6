"""MainLoop: receives requests from one mailbox, and sends the adapter's answers to another.

The answer is sent before the request is acknowledged. An exception of the adapter is also sent as
an answer. If the answer can't be sent, the request is retried after 1, 2, 4... minutes. A request
that kills its process returns when its lease expires, until it is dead-lettered.
"""

from __future__ import annotations

import asyncio
import inspect
import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Generic, Protocol, TypeVar
from uuid import UUID

import msgspec

from pillarbox.clock import Clock, SystemClock
from pillarbox.codec import Codec, codec_for
from pillarbox.core.errors import InvalidParameterError, SerializationError
from pillarbox.mailbox.message import as_datetime
from pillarbox.mailbox.protocol import Mailbox
from pillarbox.mailbox.runner import Verb, run_awaiting, run_blocking
from pillarbox.worker.budget import Budget, Meter
from pillarbox.worker.dispatcher import Dispatcher
from pillarbox.worker.engine import Worker
from pillarbox.worker.job import Job, LeaseLostError, Release, Verdict
from pillarbox.worker.requests import ErrorReport, MainLoopRequest, MainLoopResult, PromptResponse

RequestT = TypeVar("RequestT")
OutputT = TypeVar("OutputT")
T = TypeVar("T")


class ProviderAdapter(Protocol[OutputT]):
    """Answers prompts: the API of a model, or any function.

    A coroutine function is cancelled at its time limit. A plain function should check
    `meter.seconds_left`: a late answer is discarded.
    """

    def evaluate(
        self, prompt: Any, *, meter: Meter
    ) -> PromptResponse[OutputT] | Awaitable[PromptResponse[OutputT]]:
        """Answer a prompt, and report the usage to the meter."""


@dataclass(frozen=True, slots=True)
class RequestAnswered:
    """An event: a result was sent."""

    request_id: UUID
    error: ErrorReport | None
    seconds: float


class MainLoop(Generic[RequestT, OutputT]):
    """Receives requests, lets an adapter answer them, and sends the results.

    A request with a reply mailbox (as sent by `RequestClient`) is answered there, any other in
    `responses`. Override `prompt` to turn a request into a prompt.
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
        self._worker: Worker[MainLoopRequest[RequestT]] | None = None
        self._stopped = False

    def prompt(self, request: RequestT) -> Any:
        """Return the prompt for a request (default: the request itself)."""
        return request

    def run(self, *, max_iterations: int | None = None) -> None:
        """Answer requests until `shutdown`, or for `max_iterations` receives."""
        handler: Callable[..., Any] = self._serve
        if inspect.iscoroutinefunction(self._adapter.evaluate):
            handler = self._serve_in_task
        worker = self._worker = Worker(
            self._requests,
            handler,
            respond=self._respond,
            dispatcher=self._dispatcher,
            clock=self._clock,
            **self._options,
        )
        if self._stopped:  # before `_worker` was set
            worker.stop()
        worker.run(max_receives=max_iterations)

    def shutdown(self) -> None:
        """Stop receiving; `run` returns when the current requests are answered.

        May be called from any thread and from signal handlers.
        """
        self._stopped = True
        if self._worker is not None:
            self._worker.stop()

    def _serve(self, request: MainLoopRequest[RequestT], job: Job[Any]) -> MainLoopResult[OutputT]:
        return run_blocking(self._answer(request, job))

    async def _serve_in_task(
        self, request: MainLoopRequest[RequestT], job: Job[Any]
    ) -> MainLoopResult[OutputT]:
        return await run_awaiting(self._answer(request, job))

    def _answer(
        self, request: MainLoopRequest[RequestT], job: Job[Any]
    ) -> Verb[MainLoopResult[OutputT]]:
        """Let the adapter answer; await a coroutine until the time limit."""
        meter = Meter(request.budget or self._budget, request.deadline, self._now, job.check)
        try:
            meter.check()
            response = self._adapter.evaluate(self.prompt(request.request), meter=meter)
            if inspect.isawaitable(response):
                response = _in_time(response, meter.seconds_left)
            return self._result(request, meter, (yield response))
        except Exception as error:  # noqa: BLE001 - every error is sent to the client
            return self._error(request, job, error, meter)

    def _result(
        self, request: MainLoopRequest[RequestT], meter: Meter, response: PromptResponse[OutputT]
    ) -> MainLoopResult[OutputT]:
        if meter.usage.tokens or meter.usage.cost:  # the adapter reported while it ran
            meter.check()
        else:
            meter.spend(tokens=response.usage.tokens, cost=response.usage.cost)
        return MainLoopResult(request.request_id, response, completed_at=self._now())

    def _error(
        self,
        request: MainLoopRequest[RequestT],
        job: Job[Any],
        error: Exception,
        meter: Meter,
    ) -> MainLoopResult[OutputT]:
        if isinstance(error, Verdict):
            raise error
        if isinstance(error, LeaseLostError) or job.lost is not None:
            raise Release from error  # another consumer will answer
        if isinstance(error, TimeoutError) and meter.seconds_left <= 0:
            try:
                meter.check()
            except Exception as cause:  # noqa: BLE001 - names the limit that was exceeded
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
        self._dispatcher.publish(RequestAnswered(result.request_id, result.error, job.seconds))

    def _send(self, job: Job[Any], result: MainLoopResult[OutputT]) -> None:
        if job.message.reply_to is None:
            self._responses.send(result)
            return
        try:
            job.message.reply(result)
        except SerializationError:
            # A reply mailbox opened by name does not know the type of the output.
            job.message.reply(_plain(result))

    def _now(self) -> datetime:
        return as_datetime(self._clock.now() + self._clock.epoch_ns)


async def _in_time(answer: Awaitable[T], seconds: float) -> T:
    async with asyncio.timeout(None if seconds == math.inf else seconds):
        return await answer


def _plain(result: MainLoopResult[Any]) -> Any:
    output: Any = Any if result.response is None else type(result.response.output)
    codec: Codec[Any] = codec_for(MainLoopResult[output])
    return msgspec.json.decode(codec.encode(result))
