"""dramatiq-pg, which needs an older dramatiq than the other peers: in a process of its own.

`client` starts this module as a program, which does a cycle for each number on its input. What it
imports is in `PACKAGES`, where `make bench` puts it.
"""

from __future__ import annotations

import os
import select
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.harness import UnavailableError
from bench.mailboxes import Cycle, dramatiq_cycle

PACKAGES = Path(sys.prefix) / "dramatiq-pg"
CYCLE_SECONDS_MAX = 60  # its consumers have been seen to miss a notification


def prepare(url: str) -> None:
    """Create its tables."""
    if not PACKAGES.is_dir():
        raise UnavailableError("dramatiq-pg is not installed: run `make bench ARGS=postgres`")
    subprocess.run([*_program(), url, "init"], env=_environment(), check=True)


@contextmanager
def client(url: str) -> Iterator[Cycle]:
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([*_program(), url], env=_environment(), bufsize=0, **pipes) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        write, read, answers = process.stdin.write, process.stdout.readline, [process.stdout]

        def cycle(count: int) -> None:
            write(b"%d\n" % count)
            if not select.select(answers, [], [], CYCLE_SECONDS_MAX)[0]:
                process.kill()
                raise UnavailableError(f"a cycle took longer than {CYCLE_SECONDS_MAX} s")
            assert read() == b"done\n"

        yield cycle
        process.stdin.close()


def _program() -> list[str]:
    return [sys.executable, "-m", "bench.postgres.dramatiq_pg"]


def _environment() -> dict[str, str]:
    return os.environ | {"PYTHONPATH": os.pathsep.join((str(PACKAGES), os.getcwd()))}


def main(url: str, *init: str) -> None:
    from dramatiq_pg import PostgresBroker, generate_init_sql  # noqa: PLC0415 - not in the parent

    if init:
        import psycopg2  # noqa: PLC0415 - likewise

        with psycopg2.connect(url) as connection, connection.cursor() as cursor:
            cursor.execute(generate_init_sql())
        return
    broker = PostgresBroker(url=url, middleware=[], results=False)
    # Its consumer reads a notification that came before it waited only when the wait is over.
    cycle = dramatiq_cycle(broker, timeout_ms=0)
    for line in sys.stdin.buffer:
        cycle(int(line))
        os.write(1, b"done\n")
    broker.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
