"""moto's SQS server in a thread, with a clock that tests can move.

What it answers is up to moto. Three things are added from outside: the time it reads is ours, so
that no test sleeps; its verbs take turns, as its lists are not safe for threads; and it tells how
many receives wait.
"""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import wraps
from itertools import count
from typing import Any
from unittest.mock import patch

from moto.moto_server.threaded_moto_server import ThreadedMotoServer
from moto.sqs import models

from pillarbox.testing.clock import FakeClock

VERBS = (
    "send_message",
    "send_message_batch",
    "receive_message",
    "delete_message",
    "delete_message_batch",
    "change_message_visibility",
    "change_message_visibility_batch",
    "purge_queue",
)
LOOK_SECONDS = 0.05  # real time after which moto looks again by itself, as it does each second
KEYS = {
    "AWS_ACCESS_KEY_ID": "testing",
    "AWS_SECRET_ACCESS_KEY": "testing",
    "AWS_EC2_METADATA_DISABLED": "true",
}
TICK_MILLIS = 0.001  # moto shows a message after the moment it is due, not at it


class MotoServer:
    """A running server; `endpoint` is where it listens."""

    def __init__(self, endpoint: str) -> None:
        self.endpoint = endpoint
        self.clock = FakeClock()
        self._ticks = count()
        self._turn = threading.Condition(threading.RLock())
        self._waiting: Counter[str] = Counter()

    def reset(self) -> None:
        """Forget every queue; no receive stays parked."""
        self.pass_time(3_600)
        with self._turn:
            for regions in models.sqs_backends.values():
                for backend in regions.values():
                    backend.reset()

    def pass_time(self, seconds: float) -> None:
        self.clock.advance(seconds)
        with self._turn:
            self._turn.notify_all()

    def parked(self, queue: str) -> int:
        return self._waiting[queue]

    def millis(self) -> float:
        return self.clock.now() / 1e6 + next(self._ticks) * TICK_MILLIS

    def seconds(self) -> float:
        return self.millis() / 1_000

    def in_turn(self, verb: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(verb)
        def take_turn(*arguments: Any, **options: Any) -> Any:
            with self._turn:
                self._turn.notify_all()
                return verb(*arguments, **options)

        return take_turn

    def wait_for_messages(self, queue: Any) -> None:
        self._waiting[queue.name] += 1
        self._turn.wait(LOOK_SECONDS)
        self._waiting[queue.name] -= 1


@contextmanager
def running_moto() -> Iterator[MotoServer]:
    """moto's server on a free port, while this lasts."""
    threaded = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    threaded.start()
    host, port = threaded.get_host_and_port()
    server = MotoServer(f"http://{host}:{port}")
    with ExitStack() as patches:
        patches.enter_context(patch.dict(os.environ, KEYS))
        for name in VERBS:
            verb = server.in_turn(getattr(models.SQSBackend, name))
            patches.enter_context(patch.object(models.SQSBackend, name, verb))
        patches.enter_context(patch.object(models, "unix_time", server.seconds))
        patches.enter_context(patch.object(models, "unix_time_millis", server.millis))
        patches.enter_context(
            patch.object(
                models.Queue,
                "wait_for_messages",
                lambda queue, timeout: server.wait_for_messages(queue),
            )
        )
        try:
            yield server
        finally:
            server.reset()
            threaded.stop()
