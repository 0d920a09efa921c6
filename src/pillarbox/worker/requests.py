"""The messages between a client and a main loop: typed data only, errors included."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Generic, TypeVar
from uuid import UUID, uuid4

from pillarbox.worker.budget import Budget, Deadline, Usage

RequestT = TypeVar("RequestT")
OutputT = TypeVar("OutputT")


class RequestFailedError(Exception):
    """The main loop answered with an error, `report`."""

    def __init__(self, report: ErrorReport) -> None:
        super().__init__(f"{report.kind}: {report.message}")
        self.report = report


@dataclass(frozen=True, slots=True)
class ErrorReport:
    """An exception as data: never pickled, so the receiver runs no code of the sender."""

    kind: str
    message: str
    retryable: bool = False

    @classmethod
    def of(cls, error: BaseException) -> ErrorReport:
        """Return the report of an exception."""
        kind, module = type(error).__qualname__, type(error).__module__
        return cls(
            kind=kind if module == "builtins" else f"{module}.{kind}",
            message=str(error),
            retryable=bool(getattr(error, "retryable", False)),
        )


@dataclass(frozen=True, slots=True)
class PromptResponse(Generic[OutputT]):
    """The answer of an adapter, and its usage."""

    output: OutputT
    usage: Usage = field(default_factory=Usage)
    model: str = ""


def _now() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True)
class MainLoopRequest(Generic[RequestT]):
    """A request with its budget and its deadline."""

    request: RequestT
    request_id: UUID = field(default_factory=uuid4)
    budget: Budget | None = None
    deadline: Deadline | None = None
    created_at: datetime = field(default_factory=_now)


@dataclass(frozen=True, slots=True)
class MainLoopResult(Generic[OutputT]):
    """The answer to one request: a response, or an error."""

    request_id: UUID
    response: PromptResponse[OutputT] | None = None
    error: ErrorReport | None = None
    completed_at: datetime = field(default_factory=_now)

    def unwrap(self) -> PromptResponse[OutputT]:
        """Return the response, or raise `RequestFailedError`."""
        if self.response is None:
            raise RequestFailedError(self.error or ErrorReport("Unknown", "no response"))
        return self.response
