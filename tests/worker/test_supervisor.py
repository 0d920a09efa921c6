"""R103: the supervisor of worker processes, with processes that fail in unusual ways."""

from __future__ import annotations

from pathlib import Path

from pillarbox.worker.child import Options
from pillarbox.worker.supervisor import Status, Supervisor


def test_R103_a_process_that_dies_while_it_reports_is_started_again(tmp_path: Path) -> None:
    program = tmp_path / "child.py"
    program.write_text("import os, sys\nos.write(int(sys.argv[2]), b'{')\nos._exit(9)")
    deaths: list[int] = []

    def changed(status: Status) -> None:
        deaths.append(status.deaths)
        if status.deaths == 2:
            supervisor.ask_to_stop()

    supervisor = Supervisor(Options(["-"]), changed=changed, program=(str(program),))
    supervisor.run()
    assert max(deaths) == 2
