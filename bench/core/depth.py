"""Whether a cycle costs more when many messages wait."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from bench.core.cycle import BODY, cycling
from bench.harness import Contender, Race, Run, Sized, Versus
from pillarbox import InMemoryMailbox

DEPTHS = (1_000, 100_000, 1_000_000, 5_000_000)
CHUNK = 10_000


@contextmanager
def _cycle_behind(depth: int) -> Iterator[Run]:
    """Each cycle sends at the tail and takes from the head of a line of this length."""
    box: InMemoryMailbox[str] = InMemoryMailbox("bench", str)
    for start in range(0, depth, CHUNK):
        box.send_many([BODY] * min(CHUNK, depth - start))

    yield cycling(box, BODY)
    assert box.approximate_count() == depth


def waiting(sized: Sized) -> Race:
    depths = [sized(depth) for depth in DEPTHS]
    shallow = f"{depths[0]:,} waiting"

    def contender(depth: int, *versus: Versus) -> Contender:
        prepare = partial(_cycle_behind, depth)
        return Contender(f"{depth:,} waiting", prepare, sized(100_000), versus)

    return Race(
        "full cycle behind a long line",
        (
            contender(depths[0]),
            *(contender(depth, Versus(shallow, cost_at_most=1.3)) for depth in depths[1:]),
        ),
    )
