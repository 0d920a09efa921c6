"""A seeded driver of the steps of a world: the same seed, the same story."""

from __future__ import annotations

import random
from collections import Counter

from tests.model.world import (
    BEFORE_FORGETTING,
    DEAD,
    DEDUPLICATIONS,
    DELAYS,
    GROUPS,
    JUMPS,
    MAIN,
    OTHER,
    PRIORITIES,
    TIMEOUTS,
    TO_FORGETTING,
    VERBS,
    MessageSpec,
    World,
)


def random_step(world: World, rng: random.Random) -> str:
    """One step drawn from all there are. What it was, in words."""
    jump = rng.choice(JUMPS if rng.random() < world.haste else JUMPS[:10])
    world.jump(jump)
    crowd = len(world.models[DEAD].messages) > 25
    at = rng.choices((MAIN, OTHER, DEAD), (8, 1, 8 if crowd else 2))[0]
    at_forgetting = jump in (TO_FORGETTING, BEFORE_FORGETTING)
    dice = rng.random() * (0.4 if at_forgetting else 1.0)  # then mostly a send
    if world.models[at].paused and rng.random() < 0.15:
        world.pause(at, paused=False)
        return f"{jump=} pause({at}, paused=False)"
    if world.waits and not at_forgetting and rng.random() < 0.2:
        return _random_waiting(world, rng, at, jump)
    if dice < 0.30:
        return _random_send(world, rng, at, jump)
    if dice < (0.75 if world.patient else 0.58):
        count = 1 if world.patient else rng.choice((1, 1, 1, 2, 3, 5, 10, 40))
        timeout = rng.choice(TIMEOUTS[-4:] if world.plain else TIMEOUTS[-14 * world.patient :])
        world.receive(at, count, timeout)
        return f"{jump=} receive({at}, {count}, {timeout})"
    if dice < 0.92:
        verb = rng.choices(VERBS, (4, 4, 2, 3, 1))[0]
        few = rng.choice((1, 1, 1, 2, 3, 10))
        picks, option = [-rng.randint(1, 20) for _ in range(few)], rng.randrange(36)
        world.end(at, verb, picks, option)
        return f"{jump=} end({at}, {verb!r}, {picks}, {option})"
    if dice < 0.927:
        world.pause(at, paused=True)
        return f"{jump=} pause({at}, paused=True)"
    if dice < 0.95:
        picks = [rng.randint(-1, 40) for _ in range(rng.choice((1, 2, 6)))]
        world.remove(at, picks)
        return f"{jump=} remove({at}, {picks})"
    if dice < 0.98:
        source, to = rng.choice(
            ((DEAD, MAIN), (DEAD, MAIN), (DEAD, OTHER), (MAIN, OTHER), (at, at))
        )
        picks = [rng.randint(-1, 40) for _ in range(rng.choice((1, 3, 20)))]
        world.redrive(source, to, picks)
        return f"{jump=} redrive({source}, {to}, {picks})"
    if dice < 0.986:
        pick, delay = rng.randint(-1, 40), rng.choice(DELAYS)
        world.reschedule(at, pick, delay)
        return f"{jump=} reschedule({at}, {pick}, {delay})"
    if dice < 0.989:
        pick, timeout = rng.randint(-1, 40), rng.choice(TIMEOUTS)
        world.change_visibility(at, pick, timeout)
        return f"{jump=} change_visibility({at}, {pick}, {timeout})"
    if dice < 0.991:
        world.force(at)
        return f"{jump=} force({at})"
    if dice < 0.994:
        world.purge(at)
        return f"{jump=} purge({at})"
    world.tick(at)
    return f"{jump=} tick({at})"


def _random_waiting(world: World, rng: random.Random, at: int, jump: int) -> str:
    dice = rng.random()
    if dice < 0.6 and len(world.parked[at]) < 4:
        count, timeout, gone = (
            rng.choice((1, 1, 2, 5)),
            rng.choice(TIMEOUTS[1:]),
            rng.random() < 0.2,
        )
        world.park(at, count, timeout, gone=gone)
        return f"{jump=} park({at}, {count}, {timeout}, {gone=})"
    if dice < 0.75:
        world.leave(at, pick := rng.randrange(4), interrupted=(raised := rng.random() < 0.5))
        return f"{jump=} leave({at}, {pick}, interrupted={raised})"
    world.beat()
    return f"{jump=} beat()"


def _random_send(world: World, rng: random.Random, at: int, jump: int) -> str:
    count = rng.choice((1, 1, 1, 2, 3, 8))
    if len(world.models[at].messages) > 40:
        count = 0  # an empty batch: the queue is long enough to be slow to search
    style = rng.choice(("plain", "plain", "priority", "group", "any"))
    if jump in (TO_FORGETTING, BEFORE_FORGETTING):
        style = "any"
    if world.plain and rng.random() < 0.99:
        style = "plain"
    specs: list[MessageSpec] = []
    for _ in range(count):
        priority = rng.choice(PRIORITIES) if style in ("priority", "any") else 0
        group = rng.choice(GROUPS) if style in ("group", "any") else None
        deduplication = rng.choice(DEDUPLICATIONS) if style == "any" else None
        specs.append((priority, group, deduplication))
    delay = rng.choice(DELAYS)
    world.send(at, specs, delay)
    return f"{jump=} send({at}, {specs}, {delay})"


STEPS_PER_WORLD = 250


def run(seed: int, steps: int) -> tuple[int, Counter[str]]:
    """Drive worlds made from this seed for this many steps; how many, and what was seen."""
    done, seen = 0, Counter[str]()
    while done < steps:
        world = run_world(seed * 1_000_003 + done, min(STEPS_PER_WORLD, steps - done))
        done += world.steps
        seen += world.seen
    return done, seen


def run_world(seed: int, steps: int, *, keep_journal: bool = False) -> World:
    """One world made from this seed. A difference is raised with the steps that led to it."""
    world = World(seed)
    world.journal = [] if keep_journal else None
    rng = random.Random(seed)
    story: list[str] = []
    try:
        while world.steps < steps:
            story.append(random_step(world, rng))
    except Exception as error:
        lately = "\n  ".join(story[-12:])
        raise AssertionError(
            f"{error!r}\n\nreplay with run_world({seed}, {steps}), step {world.steps}, "
            f"settings {world.settings}\nthe steps before it:\n  {lately}"
        ) from error
    return world
