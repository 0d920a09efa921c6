"""A pipeline as a picture: Mermaid text, or an SVG that needs nothing else.

Logs are cylinders, processors boxes; an edge may carry a label, as lag and rate. An error log
is drawn only where it was given a name: every stream and sink has one.
"""

from __future__ import annotations

from collections.abc import Mapping
from html import escape

from pillarbox.pipeline.graph import Graph

Labels = Mapping[tuple[str, str], str]
_NODE_WIDTH, _NODE_HEIGHT = 168, 48
_GAP_X, _GAP_Y, _MARGIN = 96, 28, 20
_CAP = 7  # how far a cylinder's lid bulges


def mermaid(graph: Graph, labels: Labels | None = None) -> str:
    """The graph as Mermaid text."""
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
    """The graph as an SVG document, from left to right; the graph must have no cycle."""
    places = _places(graph)
    width = _MARGIN + max((x for x, _ in places.values()), default=0) + _NODE_WIDTH
    height = _MARGIN + max((y for _, y in places.values()), default=0) + _NODE_HEIGHT
    size = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" font-family="sans-serif">',
        "<title>Logs and processors of the pipeline</title>",
        _STYLE,
    ]
    for edge in graph.edges():
        parts += _edge(places[edge[0]], places[edge[1]], (labels or {}).get(edge))
    kinds = {f"processor:{each.id}": each.kind for each in graph.processors}
    parts += [_node(node, place, kinds.get(node, "log")) for node, place in places.items()]
    return "\n".join([*parts, "</svg>"])


def _places(graph: Graph) -> dict[str, tuple[int, int]]:
    """The upper left corner of each node: its rank is its column."""
    columns: dict[int, list[str]] = {}
    for node, rank in graph.ranks().items():
        columns.setdefault(rank, []).append(node)
    tallest = max((len(nodes) for nodes in columns.values()), default=0)
    places = {}
    for column, rank in enumerate(sorted(columns)):
        nodes = columns[rank]
        shift = (tallest - len(nodes)) * (_NODE_HEIGHT + _GAP_Y) // 2
        for row, node in enumerate(nodes):
            x = _MARGIN + column * (_NODE_WIDTH + _GAP_X)
            places[node] = x, _MARGIN + shift + row * (_NODE_HEIGHT + _GAP_Y)
    return places


def _edge(start: tuple[int, int], end: tuple[int, int], label: str | None) -> list[str]:
    x1, y1 = start[0] + _NODE_WIDTH, start[1] + _NODE_HEIGHT // 2
    x2, y2 = end[0] - 4, end[1] + _NODE_HEIGHT // 2
    middle = (x1 + x2) // 2
    line = f'<path class="edge" d="M{x1} {y1} C{middle} {y1} {middle} {y2} {x2} {y2}"/>'
    head = f'<path class="head" d="M{x2 + 4} {y2} l-9 -4 v8 z"/>'
    if not label:
        return [line, head]
    y = (y1 + y2) // 2 - 6
    return [line, head, f'<text class="label" x="{middle}" y="{y}">{escape(label)}</text>']


def _node(node: str, place: tuple[int, int], kind: str) -> str:
    x, y = place
    name = escape(node.partition(":")[2])
    right, bottom = x + _NODE_WIDTH, y + _NODE_HEIGHT
    if kind == "log":
        arc = f"a{_NODE_WIDTH / 2} {_CAP} 0 0"
        body = (
            f'<path class="log" d="M{x} {y + _CAP} {arc} 1 {_NODE_WIDTH} 0 V{bottom - _CAP} '
            f'{arc} 1 -{_NODE_WIDTH} 0 Z M{x} {y + _CAP} {arc} 0 {_NODE_WIDTH} 0"/>'
        )
    else:
        body = (
            f'<rect class="{kind}" x="{x}" y="{y}" width="{_NODE_WIDTH}" '
            f'height="{_NODE_HEIGHT}" rx="6"/>'
        )
    middle = (x + right) // 2
    text = f'<text class="name" x="{middle}" y="{y + _NODE_HEIGHT // 2 + 5}">{name}</text>'
    tip = f"<title>{kind} {name}</title>"
    return f"<g>{tip}{body}{text}</g>"


_STYLE = """<style>
.edge { fill: none; stroke: #6b7280; stroke-width: 1.5 }
.head { fill: #6b7280 }
.log { fill: #eef2ff; stroke: #4f46e5; stroke-width: 1.5 }
.source { fill: #ecfdf5; stroke: #059669; stroke-width: 1.5 }
.stream { fill: #fff7ed; stroke: #ea580c; stroke-width: 1.5 }
.sink { fill: #fdf2f8; stroke: #db2777; stroke-width: 1.5 }
.name { font-size: 14px; text-anchor: middle; fill: #111827 }
.label { font-size: 11px; text-anchor: middle; fill: #374151 }
</style>"""
