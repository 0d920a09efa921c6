"""Connections for threads, by boto3: a client for each session, region and endpoint, shared by all.

A client tries each call once: trying again is the mailbox's business, which knows when it was
closed. A parked receive can be hung up on from another thread: the socket under it is shut down.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from contextvars import ContextVar
from functools import lru_cache
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
from pillarbox.mailbox.runner import Connection, Interrupted
from pillarbox.mailbox.sqs.call import Call, Step
from pillarbox.mailbox.sqs.errors import from_botocore
from pillarbox.mutex import Mutex, reentrant_call

R = TypeVar("R")
X = TypeVar("X")

CONNECTIONS_MAX = 64  # kept open; more are opened when needed
CONNECT_SECONDS_MAX = 5
READ_SECONDS_MAX = 45  # more than twice the longest poll
_DEPTH_MAX = 2
DEFAULT_REGION = "us-east-1"  # what servers other than Amazon's are signed for

_current: ContextVar[Poll | None] = ContextVar("poll", default=None)
_making = Mutex()


class _Depth(threading.local):
    """How many calls this thread is in: more than one in a signal handler that interrupts one."""

    now = 0


_depth = _Depth()


def nested_call(call: Callable[[X], R], of: X) -> R:
    """Make a call. One that interrupts another has a client of its own: they share no lock."""
    depth = _depth.now
    if depth >= _DEPTH_MAX:
        raise reentrant_call()
    outer = _current.get()
    try:
        _depth.now = depth + 1
        _current.set(None)  # what was interrupted is none of this one's business
        return call(of)
    finally:
        _depth.now = depth
        _current.set(outer)


class Poll:
    """One parked receive: knows its connection as soon as the request is on its way."""

    def __init__(self, owner: Any) -> None:
        self.owner = owner
        self.gate = threading.Event()  # opened to cut a pause short
        self._lock = threading.Lock()
        self._socket: Any = None
        self.over = False

    def __enter__(self) -> None:
        self._token = _current.set(self)

    def __exit__(self, *error: object) -> None:
        _current.reset(self._token)
        with self._lock:
            self._socket = None  # it serves another call from now on

    def hold(self, sock: Any) -> None:
        """The request was sent through this socket; nothing but the answer is missing."""
        with self._lock:
            self._socket = sock
            if self.over:
                self._shut()

    def hang_up(self) -> None:
        """End the wait for the answer, from any thread."""
        with self._lock:
            self.over = True
            self.gate.set()
            self._shut()

    def _shut(self) -> None:
        if self._socket is None:
            return
        with suppress(OSError):  # it may be gone already
            # TLS is not said good-bye to: another thread reads from it.
            socket.socket.shutdown(self._socket, socket.SHUT_RDWR)


class _Watched:
    """A connection that tells the poll of its thread when the request was sent."""

    sock: Any

    def request(self, *arguments: Any, **options: Any) -> Any:
        answer = super().request(*arguments, **options)  # type: ignore[misc]
        poll = _current.get()
        if poll is not None:
            poll.hold(self.sock)
        return answer


class _HTTPConnection(_Watched, AWSHTTPConnection):  # type: ignore[misc]
    pass


class _HTTPSConnection(_Watched, AWSHTTPSConnection):  # type: ignore[misc]
    pass


class _HTTPPool(AWSHTTPConnectionPool):  # type: ignore[misc]
    ConnectionCls = _HTTPConnection


class _HTTPSPool(AWSHTTPSConnectionPool):  # type: ignore[misc]
    ConnectionCls = _HTTPSConnection


class SQSConnection(Connection):
    """The way to SQS for mailboxes of one session, region and endpoint."""

    def __init__(self, session: Any, region: str | None, endpoint: str | None) -> None:
        self.target = session, region, endpoint
        self._lock = threading.RLock()  # a signal handler may receive, too
        self._polls: set[Poll] = set()

    def do(self, request: Step) -> Any:
        return nested_call(self._do if request.owner is None else self._wait, request)

    def _do(self, step: Step) -> Any:
        if not isinstance(step, Call):
            return time.sleep(step.seconds)
        try:
            return getattr(shared_client(*self.target), step.operation)(**step.params)
        except Exception as error:  # told apart there, and raised if unknown
            raise from_botocore(error, step.operation, step.queue) from error

    def _wait(self, step: Step) -> Any:
        """Do this, unless the owner's mailbox is closed meanwhile."""
        poll = Poll(step.owner)
        with self._lock:
            self._polls.add(poll)
        try:
            if step.owner.closed:
                raise Interrupted
            if not isinstance(step, Call):
                return poll.gate.wait(step.seconds)
            with poll:
                return self._do(step)
        except MailboxError:
            if poll.over:
                raise Interrupted from None
            raise
        finally:
            with self._lock:
                self._polls.discard(poll)

    def wake(self, verbs: Any) -> None:
        if _depth.now:
            raise reentrant_call()
        with self._lock:
            polls = [poll for poll in self._polls if poll.owner is verbs]
        for poll in polls:
            poll.hang_up()

    def close(self) -> None:
        """Nothing: the client is shared with other mailboxes."""


def config(*, signed: bool, connections_max: int) -> dict[str, Any]:
    """How clients of either kind are made."""
    return {
        "retries": {"total_max_attempts": 1, "mode": "standard"},
        "max_pool_connections": connections_max,
        "connect_timeout": CONNECT_SECONDS_MAX,
        "read_timeout": READ_SECONDS_MAX,
        "user_agent_extra": "pillarbox",
        **({} if signed else {"signature_version": UNSIGNED}),
    }


def shared_client(session: boto3.Session | None, region: str | None, endpoint: str | None) -> Any:
    """A client for these: the same one for the same arguments, but after a fork another one.

    So it is to be asked for before each call: two processes can't share connections.
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
    """The client of a process for these."""
    with _making:  # boto3 sessions are not to be used by two threads at once
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
    """A server that speaks plain HTTP is not Amazon's: don't wait for an EC2 machine's own keys."""
    if endpoint is not None and endpoint.startswith("http:"):
        session.get_component("credential_provider").remove("iam-role")


def _watch(client: Any) -> None:
    """Let its connections tell who waits on them.

    Without this, should a later botocore change, a closed mailbox's parked receives end no
    sooner than their polls.
    """
    manager = getattr(client._endpoint.http_session, "_manager", None)
    if manager is not None:
        manager.pool_classes_by_scheme = {"http": _HTTPPool, "https": _HTTPSPool}
