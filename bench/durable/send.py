"""Sending: confirmed on disk by one producer and by a hundred, and left to the system."""

from __future__ import annotations

from operator import attrgetter

from bench.durable.contestants import FILES, PILLARBOX, RAW, SQLITE
from bench.durable.races import THREADS, alone, crowd, crowd_rounds, shared
from bench.durable.redis_server import REDIS_LIST
from bench.harness import Race, Sized, Versus, VersusBest

ALWAYS = "Redis AOF always"
EVERYSEC = "Redis AOF everysec"
_send = attrgetter("send")
_SQLITE_NAMES = tuple(each.name for each in SQLITE)


def one_producer_synced(sized: Sized) -> Race:
    few = sized(300)
    versus = (
        Versus(RAW.name, speed_at_least=0.9),
        VersusBest("best on SQLite", _SQLITE_NAMES),
        Versus(ALWAYS),
    )
    return Race(
        "send, one producer, confirmed on disk",
        (
            alone(PILLARBOX, _send, few, *versus, synced=True),
            alone(RAW, _send, few, synced=True),
            *(alone(each, _send, few, synced=True) for each in SQLITE),
            alone(REDIS_LIST, _send, few, synced=True, name=ALWAYS),
        ),
    )


def many_producers_synced(sized: Sized) -> Race:
    many, few = shared(sized, 30_000), shared(sized, 1_000)
    versus = (
        VersusBest("best on SQLite", _SQLITE_NAMES, speed_at_least=10),
        Versus(ALWAYS, speed_at_least=5),
    )
    return Race(
        f"send, {THREADS} producers in threads, confirmed on disk",
        (
            crowd(PILLARBOX, _send, many, *versus),
            *(crowd(each, _send, few) for each in SQLITE),
            crowd(REDIS_LIST, _send, shared(sized, 10_000), name=ALWAYS),
        ),
        crowd_rounds(sized),
    )


def one_producer_unsynced(sized: Sized) -> Race:
    many = sized(8_000)
    peers = (*_SQLITE_NAMES, FILES.name, EVERYSEC)
    versus = (VersusBest("fastest peer", peers, speed_at_least=4), Versus(RAW.name))
    return Race(
        "send, one producer, left to the operating system",
        (
            alone(PILLARBOX, _send, many, *versus, synced=False),
            alone(RAW, _send, many, synced=False),
            *(alone(each, _send, many, synced=False) for each in (*SQLITE, FILES)),
            alone(REDIS_LIST, _send, many, synced=False, name=EVERYSEC),
        ),
    )
