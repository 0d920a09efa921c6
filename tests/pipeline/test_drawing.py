"""The graph as a picture. No Spark."""

from __future__ import annotations

import random
import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path

import pytest

from pillarbox.pipeline import Pipeline
from pillarbox.pipeline.drawing import mermaid, svg
from pillarbox.pipeline.layout import (
    LABEL_CHAR_WIDTH,
    NODE_HEIGHT,
    NODE_WIDTH,
    Edge,
    Layout,
    layout,
)

Box = tuple[float, float, float, float]
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    made = Pipeline("shop", path=tmp_path)
    for name in ("orders", "large", "small"):
        made.log(name)
    made.stream(inputs="orders", outputs=["large", "small"], id="fan-out")(lambda orders: {})
    made.sink(inputs="large", id="ship")(lambda batch, step: None)
    return made


def test_R80_mermaid_has_every_edge(pipeline: Pipeline) -> None:
    assert mermaid(pipeline.graph).splitlines() == [
        "flowchart LR",
        '    log_orders[("orders")] --> processor_fan_out["fan-out"]',
        '    processor_fan_out["fan-out"] --> log_large[("large")]',
        '    processor_fan_out["fan-out"] --> log_small[("small")]',
        '    log_large[("large")] --> processor_ship["ship"]',
    ]


def test_R88_edges_carry_figures(pipeline: Pipeline) -> None:
    labels = {("log:orders", "processor:fan-out"): "lag 7"}
    assert '-->|"lag 7"| processor_fan_out' in mermaid(pipeline.graph, labels)
    assert ">lag 7</text>" in svg(pipeline.graph, labels)


def test_R80_svg_shows_every_node_apart_from_the_others(pipeline: Pipeline) -> None:
    root = ET.fromstring(pipeline.svg())
    names = [text.text for text in root.iter(f"{SVG}text") if text.get("class") == "name"]
    assert sorted(map(str, names)) == ["fan-out", "large", "orders", "ship", "small"]
    places = {
        (text.get("x"), text.get("y"))
        for text in root.iter(f"{SVG}text")
        if text.get("class") == "name"
    }
    assert len(places) == 5
    assert len([p for p in root.iter(f"{SVG}path") if p.get("class") == "edge"]) == 4


def test_R80_svg_loads_nothing_from_elsewhere(pipeline: Pipeline) -> None:
    links = re.findall(r"https?://[^\"' ]+", pipeline.svg())
    assert set(links) == {"http://www.w3.org/2000/svg"}


def boxes(places: Layout, labels: dict[Edge, str]) -> dict[str, Box]:
    """What is drawn, as (left, top, right, bottom)."""
    found: dict[str, Box] = {
        node: (x, y, x + NODE_WIDTH, y + NODE_HEIGHT) for node, (x, y) in places.nodes.items()
    }
    for edge, (x, y) in places.labels.items():
        half = len(labels[edge]) * LABEL_CHAR_WIDTH / 2
        found[f"label of {edge}"] = (x - half, y - 10, x + half, y + 3)
    return found


def lines(places: Layout) -> Iterator[tuple[Edge, float, float]]:
    """Points of every edge, as it is drawn."""
    for edge, points in places.edges.items():
        for i in range(1, len(points)):
            (x1, y1), (x2, y2) = points[i - 1], points[i]
            for t in (n / 40 for n in range(41)):
                a, b, c, d = (1 - t) ** 3, 3 * t * (1 - t) ** 2, 3 * t * t * (1 - t), t**3
                middle = (x1 + x2) // 2
                yield edge, a * x1 + (b + c) * middle + d * x2, (a + b) * y1 + (c + d) * y2


@pytest.mark.parametrize("seed", range(30))
def test_R88_nothing_in_the_picture_lies_over_anything_else(seed: int) -> None:
    """Random graphs, with edges that pass several columns and very long figures."""
    chosen = random.Random(seed)
    ranks = {f"log:{n}": chosen.randrange(6) for n in range(chosen.randrange(4, 16))}
    used = sorted(set(ranks.values()))
    ranks = {node: used.index(rank) for node, rank in ranks.items()}
    edges = [(a, b) for a in ranks for b in ranks if ranks[a] < ranks[b] and chosen.random() < 0.3]
    labels = {edge: f"lag {chosen.randrange(10**9):,}" for edge in edges}

    places = layout(ranks, edges, labels)

    drawn = boxes(places, labels)
    for one, other in combinations(drawn, 2):
        (left, top, right, bottom), (l2, t2, r2, b2) = drawn[one], drawn[other]
        assert right <= l2 or r2 <= left or bottom <= t2 or b2 <= top, (one, other)
    for left, top, right, bottom in drawn.values():
        assert left >= 0
        assert top >= 0
        assert right <= places.width
        assert bottom <= places.height
    for edge, x, y in lines(places):
        for node, (left, top) in places.nodes.items():
            inside = left < x < left + NODE_WIDTH and top < y < top + NODE_HEIGHT
            assert not inside, (edge, node)


def test_R80_a_long_name_stays_in_its_node_and_is_told_whole(tmp_path: Path) -> None:
    made = Pipeline("shop", path=tmp_path)
    made.log("a-log-with-a-very-long-name-indeed")

    drawn = made.svg()

    assert ">a-log-with-a-very-\u2026</text>" in drawn
    assert "<title>log a-log-with-a-very-long-name-indeed</title>" in drawn
