"""Draws a pipeline as Mermaid text or as a self-contained SVG.

Logs are cylinders and processors are boxes. An edge can have a label, such as a lag or a rate.
Every stream and sink has an error log; it is drawn only if the pipeline declares it as a log.
"""

from __future__ import annotations

from collections.abc import Mapping
from html import escape

from pillarbox.pipeline.graph import Graph
from pillarbox.pipeline.layout import NODE_HEIGHT, NODE_WIDTH, Edge, Point, layout

Labels = Mapping[Edge, str]
_NAME_CHARS_MAX = 19  # what fits into a node
_CAP = 7  # how far a cylinder's lid bulges


def mermaid(graph: Graph, labels: Labels | None = None) -> str:
    """Return the graph as Mermaid text."""
    lines = ["flowchart LR"]
    for start, end in graph.edges():
        label = (labels or {}).get((start, end))
        arrow = f'-->|"{label}"|' if label else "-->"
        lines.append(f"    {_mermaid_node(start)} {arrow} {_mermaid_node(end)}")
    return "\n".join(lines)


def _mermaid_node(node: str) -> str:
    kind, _, name = node.partition(":")
    text = name.replace('"', "#quot;")
    shape = f'[("{text}")]' if kind == "log" else f'["{text}"]'
    return f"{kind}_{name.replace('-', '_')}{shape}"


def svg(graph: Graph, labels: Labels | None = None) -> str:
    """Return the graph as an SVG document, left to right. The graph must have no cycle."""
    labels = labels or {}
    positions = layout(graph.ranks(), graph.edges(), labels)
    width, height = positions.width, positions.height
    size = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" font-family="sans-serif">',
        "<title>Logs and processors of the pipeline</title>",
        _STYLE,
    ]
    for points in positions.edges.values():
        parts += _edge(points)
    kinds = {f"processor:{each.id}": each.kind for each in graph.processors}
    parts += [_node(node, at, kinds.get(node, "log")) for node, at in positions.nodes.items()]
    parts += [_label(labels[edge], at) for edge, at in positions.labels.items()]
    return "\n".join([*parts, "</svg>"])


def _edge(points: list[Point]) -> list[str]:
    """Return curves between columns and straight lines through the columns passed."""
    x, y = points[0]
    steps = [f"M{x} {y}"]
    for i in range(1, len(points)):
        (x1, y1), (x2, y2) = points[i - 1 : i + 1]
        middle = (x1 + x2) // 2
        steps.append(f"C{middle} {y1} {middle} {y2} {x2} {y2}" if i % 2 else f"H{x2}")
    x, y = points[-1]
    head = f'<path class="head" d="M{x} {y} l-9 -4 v8 z"/>'
    return [f'<path class="edge" d="{" ".join(steps)}"/>', head]


def _label(text: str, at: Point) -> str:
    return f'<text class="label" x="{at[0]}" y="{at[1]}">{escape(text)}</text>'


def _node(node: str, at: Point, kind: str) -> str:
    x, y = at
    name = node.partition(":")[2]
    short = name if len(name) <= _NAME_CHARS_MAX else f"{name[: _NAME_CHARS_MAX - 1]}\u2026"
    right, bottom = x + NODE_WIDTH, y + NODE_HEIGHT
    if kind == "log":
        arc = f"a{NODE_WIDTH / 2} {_CAP} 0 0"
        body = (
            f'<path class="log" d="M{x} {y + _CAP} {arc} 1 {NODE_WIDTH} 0 V{bottom - _CAP} '
            f'{arc} 1 -{NODE_WIDTH} 0 Z M{right} {y + _CAP} {arc} 1 -{NODE_WIDTH} 0"/>'
        )
    else:
        body = (
            f'<rect class="{kind}" x="{x}" y="{y}" width="{NODE_WIDTH}" '
            f'height="{NODE_HEIGHT}" rx="6"/>'
        )
    middle = (x + right) // 2
    text = f'<text class="name" x="{middle}" y="{y + NODE_HEIGHT // 2 + 5}">{escape(short)}</text>'
    tip = f"<title>{kind} {escape(name)}</title>"
    return f"<g>{tip}{body}{text}</g>"


_STYLE = """<style>
.edge { fill: none; stroke: #6b7280; stroke-width: 1.5 }
.head { fill: #6b7280 }
.log { fill: #eef2ff; stroke: #4f46e5; stroke-width: 1.5 }
.source { fill: #ecfdf5; stroke: #059669; stroke-width: 1.5 }
.stream { fill: #fff7ed; stroke: #ea580c; stroke-width: 1.5 }
.sink { fill: #fdf2f8; stroke: #db2777; stroke-width: 1.5 }
.name { font-size: 14px; text-anchor: middle; fill: #111827 }
.label { font-size: 11px; text-anchor: middle; fill: #374151;
  paint-order: stroke; stroke: #fff; stroke-width: 4px }
@media (prefers-color-scheme: dark) { .label { fill: #d1d5db; stroke: #14181d } }
</style>"""
