"""Makes the fixture of the present format: python -m tests.log.make_fixture. Never overwrites."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from pillarbox.log import Log
from pillarbox.log.layout import FORMAT
from tests.log.test_format import FIXTURES, RECORDS


def main() -> None:
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "log"
        log = Log.open(path, segment_bytes=8192, prepare_ahead=False)
        for record in RECORDS[:3]:
            log.append(record)
        log.append_committed(RECORDS[3:8], b"meta")
        for record in RECORDS[8:]:
            log.append(record)
        keep(path, "killed")
        log.close()
        keep(path, "closed")


def keep(path: Path, state: str) -> None:
    target = FIXTURES / f"v{FORMAT}-{state}"
    target.mkdir(parents=True, exist_ok=False)
    for segment in path.glob("*.seg"):
        shutil.copy(segment, target)


if __name__ == "__main__":
    main()
