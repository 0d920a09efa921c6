"""Connections for threads, with one shared boto3 client per session, region and endpoint.

A client makes each call once: the mailbox retries, because it knows when it was closed. Another
thread can end a waiting receive by shutting down its socket.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from contextvars import ContextVar
from functools import lru_cache, partial
from typing import Any, TypeVar

import boto3
from botocore import UNSIGNED
from botocore.awsrequest import (
    AWSHTTPConnection,
    AWSHTTPConnectionPool,
    AWSHTTPSConnection,
    AWSHTTPSConnectionPool,
)
from botocore.config import Config
from botocore.session import get_session

from pillarbox.core.errors import MailboxError
from pillarbox.mailbox.runner import Interrupted, Parked, ParkingConnection
from pillarbox.mailbox.sqs.call import Call, Step
from pillarbox.mailbox.sqs.errors import from_botocore
from pillarbox.mutex import Mutex, reentrant_call

R = TypeVar("R")
X = TypeVar("X")

CONNECTIONS_MAX = 64  # kept in the pool; more are opened on demand
CONNECT_SECONDS_MAX = 5
READ_SECONDS_MAX = 45  # more than twice the longest poll
_DEPTH_MAX = 2
DEFAULT_REGION = "us-east-1"  # for servers other than AWS

_current: ContextVar[Parked | None] = ContextVar("poll", default=None)
_making = Mutex()


class _Depth(threading.local):
    """The nesting depth of calls in this thread; more than one in a signal handler."""

    now = 0


_depth = _Depth()


def nested_call(call: Callable[[X], R], of: X) -> R:
    """Make a call; in a signal handler that interrupted a call, with a separate client."""
    depth = _depth.now
    if depth >= _DEPTH_MAX:
        raise reentrant_call()
    outer = _current.get()
    try:
        _depth.now = depth + 1
        _current.set(None)  # do not inherit the interrupted call's poll
        return call(of)
    finally:
        _depth.now = depth
        _current.set(outer)


class _Watched:
    """A connection that hands its socket to the poll of its thread once the request is sent."""

    sock: Any

    def request(self, *arguments: Any, **options: Any) -> Any:
        answer = super().request(*arguments, **options)  # type: ignore[misc]
        poll = _current.get()
        if poll is not None:
            poll.use(partial(_shut, self.sock))
        return answer


class _HTTPConnection(_Watched, AWSHTTPConnection):  # type: ignore[misc]
    pass


class _HTTPSConnection(_Watched, AWSHTTPSConnection):  # type: ignore[misc]
    pass


class _HTTPPool(AWSHTTPConnectionPool):  # type: ignore[misc]
    ConnectionCls = _HTTPConnection


class _HTTPSPool(AWSHTTPSConnectionPool):  # type: ignore[misc]
    ConnectionCls = _HTTPSConnection


def _shut(sock: Any) -> None:
    with suppress(OSError):  # it may be gone already
        # Without a TLS close: another thread reads from it.
        socket.socket.shutdown(sock, socket.SHUT_RDWR)


class SQSConnection(ParkingConnection):
    """The way to SQS for mailboxes of one session, region and endpoint."""

    def __init__(self, session: Any, region: str | None, endpoint: str | None) -> None:
        super().__init__()
        self.target = session, region, endpoint

    def do(self, request: Step) -> Any:
        if request.owner is None:
            return nested_call(self._do, request)
        return self._park(request.owner, partial(nested_call, partial(self._wait, request)))

    def _do(self, step: Step) -> Any:
        if not isinstance(step, Call):
            return time.sleep(step.seconds)
        try:
            return getattr(shared_client(*self.target), step.operation)(**step.params)
        except Exception as error:  # `from_botocore` re-raises unknown ones
            raise from_botocore(error, step.operation, step.queue) from error

    def _wait(self, step: Step, poll: Parked) -> Any:
        """Run a step that ends early if `poll` is woken."""
        if not isinstance(step, Call):
            return poll.gate.acquire(timeout=step.seconds)
        _current.set(poll)  # until the end of the `nested_call`
        try:
            return self._do(step)
        except MailboxError:
            if poll.over:
                raise Interrupted from None
            raise
        finally:
            poll.use(None)  # the socket goes back to the pool

    def wake(self, verbs: Any) -> None:
        if _depth.now:
            raise reentrant_call()
        super().wake(verbs)

    def close(self) -> None:
        """Do nothing: other mailboxes share the client."""


def config(*, signed: bool, connections_max: int) -> dict[str, Any]:
    """Return the configuration of sync and async clients."""
    return {
        "retries": {"total_max_attempts": 1, "mode": "standard"},
        "max_pool_connections": connections_max,
        "connect_timeout": CONNECT_SECONDS_MAX,
        "read_timeout": READ_SECONDS_MAX,
        "user_agent_extra": "pillarbox",
        **({} if signed else {"signature_version": UNSIGNED}),
    }


def shared_client(session: boto3.Session | None, region: str | None, endpoint: str | None) -> Any:
    """Return the client for these arguments; after a fork, a new one.

    Call this before each call to SQS, because two processes can't share connections.
    """
    return client_of(os.getpid(), session, region, endpoint, max(_depth.now, 1))


@lru_cache(maxsize=128)
def client_of(
    process: int,
    session: boto3.Session | None,
    region: str | None,
    endpoint: str | None,
    depth: int = 1,
) -> Any:
    """Return the cached client of a process for these arguments."""
    with _making:  # boto3 sessions are not thread-safe
        if session is None:
            core = get_session()
            skip_instance_credentials(core, endpoint)
            session = boto3.Session(botocore_session=core)
        signed = endpoint is None or session.get_credentials() is not None
        client = session.client(
            "sqs",
            region_name=region or session.region_name or (DEFAULT_REGION if endpoint else None),
            endpoint_url=endpoint,
            config=Config(**config(signed=signed, connections_max=CONNECTIONS_MAX)),
        )
    _watch(client)
    return client


def skip_instance_credentials(session: Any, endpoint: str | None) -> None:
    """Skip the EC2 metadata service for plain-HTTP endpoints, which are not AWS."""
    if endpoint is not None and endpoint.startswith("http:"):
        session.get_component("credential_provider").remove("iam-role")


def _watch(client: Any) -> None:
    """Make the client's connections report their sockets to `Parked`.

    If a later botocore breaks this, waiting receives of a closed mailbox end only with their polls.
    """
    manager = getattr(client._endpoint.http_session, "_manager", None)
    if manager is not None:
        manager.pool_classes_by_scheme = {"http": _HTTPPool, "https": _HTTPSPool}
