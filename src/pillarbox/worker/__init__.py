"""Workers and main loops on any mailbox, and the dispatcher of their events."""

from pillarbox.worker.budget import (
    Budget,
    BudgetExceededError,
    Deadline,
    DeadlineExceededError,
    Meter,
    Usage,
)
from pillarbox.worker.decorators import WorkerFunction, worker
from pillarbox.worker.dispatcher import Dispatcher
from pillarbox.worker.engine import Worker
from pillarbox.worker.job import (
    Job,
    LeaseLost,
    LeaseLostError,
    ReceiveFailed,
    Reject,
    Release,
    Retry,
    TaskEnded,
    TaskStarted,
    WorkerStarted,
    WorkerStopped,
)
from pillarbox.worker.lease_keeper import LeaseKeeper
from pillarbox.worker.main_loop import MainLoop, ProviderAdapter, RequestAnswered
from pillarbox.worker.requests import (
    ErrorReport,
    MainLoopRequest,
    MainLoopResult,
    PromptResponse,
    RequestFailedError,
)
from pillarbox.worker.retry import RetryPolicy

__all__ = [
    "Budget",
    "BudgetExceededError",
    "Deadline",
    "DeadlineExceededError",
    "Dispatcher",
    "ErrorReport",
    "Job",
    "LeaseKeeper",
    "LeaseLost",
    "LeaseLostError",
    "MainLoop",
    "MainLoopRequest",
    "MainLoopResult",
    "Meter",
    "PromptResponse",
    "ProviderAdapter",
    "ReceiveFailed",
    "Reject",
    "Release",
    "RequestAnswered",
    "RequestFailedError",
    "Retry",
    "RetryPolicy",
    "TaskEnded",
    "TaskStarted",
    "Usage",
    "Worker",
    "WorkerFunction",
    "WorkerStarted",
    "WorkerStopped",
    "worker",
]
