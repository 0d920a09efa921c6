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
    quick = rng.random() < 0.5
    at_forgetting = jump in (TO_FORGETTING, BEFORE_FORGETTING)
    dice = rng.random() * (0.4 if at_forgetting else 1.0)  # then mostly a send
    if dice < 0.30:
        return _random_send(world, rng, at, jump, quick)
    if dice < (0.75 if world.patient else 0.58):
        count = 1 if world.patient else rng.choice((1, 1, 1, 2, 3, 5, 10, 40))
        timeout = rng.choice(TIMEOUTS[-4:] if world.plain else TIMEOUTS[-14 * world.patient :])
        world.receive(at, count, timeout, quick=quick)
        return f"{jump=} receive({at}, {count}, {timeout}, {quick=})"
    if dice < 0.92:
        verb = rng.choices(VERBS, (4, 4, 2, 3, 1))[0]
        few = rng.choice((1, 1, 1, 2, 3, 10))
        picks, option = [-rng.randint(1, 20) for _ in range(few)], rng.randrange(36)
        world.end(at, verb, picks, option, quick=quick)
        return f"{jump=} end({at}, {verb!r}, {picks}, {option}, {quick=})"
    if dice < 0.95:
        picks = [rng.randint(-1, 40) for _ in range(rng.choice((1, 2, 6)))]
        world.remove(at, picks, quick=quick)
        return f"{jump=} remove({at}, {picks}, {quick=})"
    if dice < 0.98:
        source, to = rng.choice(
            ((DEAD, MAIN), (DEAD, MAIN), (DEAD, OTHER), (MAIN, OTHER), (at, at))
        )
        picks = [rng.randint(-1, 40) for _ in range(rng.choice((1, 3, 20)))]
        world.redrive(source, to, picks, quick=quick)
        return f"{jump=} redrive({source}, {to}, {picks}, {quick=})"
    if dice < 0.986:
        pick, delay = rng.randint(-1, 40), rng.choice(DELAYS)
        world.reschedule(at, pick, delay, quick=quick)
        return f"{jump=} reschedule({at}, {pick}, {delay}, {quick=})"
    if dice < 0.988:
        world.force(at, quick=quick)
        return f"{jump=} force({at}, {quick=})"
    if dice < 0.992:
        world.purge(at, quick=quick)
        return f"{jump=} purge({at}, {quick=})"
    world.tick(at)
    return f"{jump=} tick({at})"


def _random_send(world: World, rng: random.Random, at: int, jump: int, quick: bool) -> str:
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
    world.send(at, specs, delay, quick=quick)
    return f"{jump=} send({at}, {specs}, {delay}, {quick=})"


STEPS_PER_WORLD = 250


def run(seed: int, steps: int, *, snapshot_every: int = 16) -> tuple[int, Counter[str]]:
    """Drive worlds made from this seed for this many steps; how many, and what was seen."""
    done, seen = 0, Counter[str]()
    while done < steps:
        world = run_world(
            seed * 1_000_003 + done, min(STEPS_PER_WORLD, steps - done), snapshot_every
        )
        done += world.steps
        seen += world.seen
    return done, seen


def run_world(
    seed: int, steps: int, snapshot_every: int = 16, *, keep_journal: bool = False
) -> World:
    """One world made from this seed. A difference is raised with the steps that led to it."""
    world = World(seed, snapshot_every=snapshot_every)
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
