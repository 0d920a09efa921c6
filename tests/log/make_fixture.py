"""Makes the fixture of the present format: python -m tests.log.make_fixture. Never overwrites."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from pillarbox.log import Log, RealDisk
from pillarbox.log.layout import FORMAT
from tests.log.adopted import adopt, stage
from tests.log.test_format import FIXTURES, V1_RECORDS


def main() -> None:
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "log"
        log = Log.open(path, segment_bytes=8192, prepare_ahead=False)
        for record in V1_RECORDS[:3]:
            log.append(record)
        adopt(log, [stage(RealDisk(), f"{scratch}/staged", V1_RECORDS[3:23])], b"v1")
        log.append_many(V1_RECORDS[23:])
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
