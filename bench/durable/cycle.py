"""The full cycle: send, receive, acknowledge.

Targets are against peers that have such a cycle. Those where a message is gone once taken do
less, and are shown for information.
"""

from __future__ import annotations

from operator import attrgetter

from bench.durable.contestants import FILES, PILLARBOX, RAW, SQLITE
from bench.durable.races import THREADS, alone, crowd, crowd_rounds, shared
from bench.durable.redis_server import REDIS_LIST, REDIS_STREAM
from bench.harness import Race, Sized, Versus, VersusBest

_cycle = attrgetter("cycle")
_ACKNOWLEDGING = tuple(each.name for each in SQLITE if each.acknowledges)
_TAKING = tuple(each.name for each in SQLITE if not each.acknowledges)
_REDIS = (REDIS_LIST, REDIS_STREAM)


def _named(level: str) -> list[str]:
    return [f"{each.name}, AOF {level}" for each in _REDIS]


def one_thread_synced(sized: Sized) -> Race:
    few = sized(120)
    names = _named("always")
    versus = (
        Versus(RAW.name, speed_at_least=0.9),
        VersusBest("best on SQLite", _ACKNOWLEDGING),
        VersusBest("best that takes away", _TAKING),
        VersusBest("Redis", tuple(names)),
    )
    return Race(
        "full cycle, one thread, confirmed on disk",
        (
            alone(PILLARBOX, _cycle, few, *versus, synced=True),
            alone(RAW, _cycle, few, synced=True),
            *(alone(each, _cycle, few, synced=True) for each in SQLITE),
            *(
                alone(each, _cycle, few, synced=True, name=name)
                for each, name in zip(_REDIS, names, strict=True)
            ),
        ),
    )


def many_threads_synced(sized: Sized) -> Race:
    many, few = shared(sized, 10_000), shared(sized, 500)
    names = _named("always")
    versus = (
        VersusBest("best on SQLite", _ACKNOWLEDGING, speed_at_least=10),
        VersusBest("Redis", tuple(names), speed_at_least=5),
        VersusBest("best that takes away", _TAKING),
    )
    return Race(
        f"full cycle, {THREADS} threads, confirmed on disk",
        (
            crowd(PILLARBOX, _cycle, many, *versus),
            *(crowd(each, _cycle, few) for each in SQLITE),
            *(
                crowd(each, _cycle, shared(sized, 2_000), name=name)
                for each, name in zip(_REDIS, names, strict=True)
            ),
        ),
        crowd_rounds(sized),
    )


def one_thread_unsynced(sized: Sized) -> Race:
    many = sized(4_000)
    names = _named("everysec")
    versus = (
        VersusBest("fastest peer", (*_ACKNOWLEDGING, *names), speed_at_least=4),
        VersusBest("fastest that takes away", (*_TAKING, FILES.name)),
    )
    return Race(
        "full cycle, one thread, left to the operating system",
        (
            alone(PILLARBOX, _cycle, many, *versus, synced=False),
            *(alone(each, _cycle, many, synced=False) for each in (*SQLITE, FILES)),
            *(
                alone(each, _cycle, many, synced=False, name=name)
                for each, name in zip(_REDIS, names, strict=True)
            ),
        ),
    )
