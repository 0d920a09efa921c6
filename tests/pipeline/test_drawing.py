"""The graph as a picture. No Spark."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from pillarbox.pipeline import Pipeline
from pillarbox.pipeline.drawing import mermaid, svg

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
