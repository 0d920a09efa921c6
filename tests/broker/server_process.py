"""`pillarbox serve` as a process of its own, that tests can stop, kill and start again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from types import TracebackType
from typing import Any, Self


class Server:
    """A broker in another process. It keeps its port when it is started again."""

    def __init__(self, *arguments: str, port: int = 0, env: dict[str, str] | None = None) -> None:
        self._arguments = arguments
        self._env = env or {}
        self.port = port
        self.start()

    def start(self) -> None:
        command = [sys.executable, "-m", "pillarbox.cli", "serve", "--json"]
        if self.port:
            command += ["--port", str(self.port)]
        elif "--port" not in self._arguments and "PILLARBOX_PORT" not in self._env:
            command += ["--port", "0"]
        began = time.monotonic()
        self.process = subprocess.Popen(
            [*command, *self._arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, **self._env},
            text=True,
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        self.seconds_to_start = time.monotonic() - began
        if not line:
            _, errors = self.process.communicate()
            raise AssertionError(f"it did not start: {errors}")
        self.told: dict[str, Any] = json.loads(line)
        self.url: str = self.told["url"]
        self.port = int(self.url.rpartition(":")[2])

    def kill(self) -> None:
        self.process.kill()
        self._reap()

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self._reap()

    def _reap(self) -> int:
        _, self.errors = self.process.communicate(timeout=60)
        return self.process.returncode

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.process.poll() is None:
            self.kill()
