"""`pip install pillarbox`: two packages, a quick import, and mailboxes that work."""

from __future__ import annotations

import resource
import statistics
from pathlib import Path

from tests.install.support import run

IMPORT_MS_MAX = 60

PROGRAM = """
from pillarbox import Log, open_mailbox

for url in ("memory:orders", "file:./data/orders"):
    with open_mailbox(url, str) as orders:
        orders.send("tea", priority=9)
        print([(m.body, m.acknowledge()) for m in orders.receive(wait_time_seconds=5)])
with Log.open("./history") as log:
    print(log.append(b"one"))
"""

WARNING = """
from pillarbox.logger import logger
logger.warning("disk is 100% full", path="/data")
try:
    1 / 0
except ZeroDivisionError:
    logger.exception("a round failed")
"""


def test_R31_the_base_install_has_mailboxes_and_a_log(bare: Path, tmp_path: Path) -> None:
    code, out, err = run(bare, "-W", "error", "-c", PROGRAM, cwd=tmp_path)
    assert (code, err) == (0, "")
    assert out.splitlines() == ["[('tea', True)]"] * 2 + ["0"]


def test_R31_the_base_install_is_two_packages(bare: Path, tmp_path: Path) -> None:
    code = "from importlib import metadata; print(*(d.name for d in metadata.distributions()))"
    _, out, _ = run(bare, "-c", code, cwd=tmp_path)
    assert set(out.split()) == {"google-crc32c", "msgspec", "pillarbox"}


def cpu_ms(python: Path, code: str, cwd: Path) -> float:
    """The CPU time of a whole process: other work on the machine does not count."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert run(python, "-c", code, cwd=cwd)[0] == 0
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return 1_000 * (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


def test_R31_importing_takes_less_than_60_ms_of_cpu(bare: Path, tmp_path: Path) -> None:
    run(bare, "-c", "import pillarbox", cwd=tmp_path)  # compiles it
    bare_ms, import_ms = (
        statistics.median(cpu_ms(bare, code, tmp_path) for _ in range(7))
        for code in ("pass", "import pillarbox")
    )
    assert import_ms - bare_ms < IMPORT_MS_MAX


def test_R98_log_lines_are_key_value_pairs_on_standard_error(bare: Path, tmp_path: Path) -> None:
    code, out, err = run(bare, "-c", WARNING, cwd=tmp_path)
    assert (code, out) == (0, "")
    assert err.startswith("event='disk is 100% full' path='/data'\nevent='a round failed'\n")
    assert err.endswith("ZeroDivisionError: division by zero\n")
