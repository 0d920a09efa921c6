"""One race: the same number of tasks, one producer, the same number of tasks at a time."""

from __future__ import annotations

from functools import partial

from bench.harness import ROUNDS, Contender, Race, Sized, VersusBest
from bench.worker.peers import CONCURRENCY, OURS, OURS_IN_BATCHES, PEERS, on_broker, on_redis

TASKS = 10_000
TARGET = 1.5


def no_op_tasks(sized: Sized) -> Race:
    tasks = sized(TASKS)
    names = tuple(peer.name for peer in PEERS)
    fastest = VersusBest("the fastest peer", names, TARGET)
    versus = VersusBest("the fastest peer", names)
    return Race(
        f"{tasks:,} no-op tasks on Redis, from send to acknowledge, {CONCURRENCY} at a time",
        (
            Contender(OURS.name, partial(on_redis, OURS), tasks, (fastest,)),
            Contender(OURS_IN_BATCHES.name, partial(on_redis, OURS_IN_BATCHES), tasks, (versus,)),
            *(Contender(p.name, partial(on_redis, p), tasks, note=p.note) for p in PEERS),
            Contender(
                "pillarbox, on its own broker, synced to disk",
                partial(on_broker, OURS),
                tasks,
                (versus,),
            ),
        ),
        rounds=min(ROUNDS, sized(3 * 50)),
    )
