"""Computes positions for the nodes, edges and labels of a graph, without overlaps.

Nodes are in columns by rank. An edge that crosses a column has its own slot there, so edges bend
only between columns. Labels are also between columns, and are moved down until none overlap.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise

NODE_WIDTH, NODE_HEIGHT = 168, 48
MARGIN = 20
LABEL_CHAR_WIDTH, LABEL_HEIGHT = 6.5, 15
_SLOT_HEIGHT = 16
_GAP_X, _GAP_Y = 96, 28
_LABEL_SPACE = 12  # between a label and the adjacent nodes
_SWEEPS = 4

Edge = tuple[str, str]
Item = str | tuple[Edge, int]  # a node, or the slot of an edge in a column that it crosses
Point = tuple[int, int]


@dataclass(slots=True)
class Layout:
    """Top-left corners of nodes, points of edges (two for each column), centres of labels."""

    width: int = 0
    height: int = 0
    nodes: dict[str, Point] = field(default_factory=dict)
    edges: dict[Edge, list[Point]] = field(default_factory=dict)
    labels: dict[Edge, Point] = field(default_factory=dict)


def layout(ranks: Mapping[str, int], edges: Iterable[Edge], labels: Mapping[Edge, str]) -> Layout:
    """Lay out a graph without cycles; each edge leads to a higher rank."""
    edges = list(edges)
    chains = {edge: _chain(edge, ranks) for edge in edges}
    columns = _columns(ranks, chains)
    longest = max(map(len, labels.values()), default=0)
    gap = max(_GAP_X, round(longest * LABEL_CHAR_WIDTH) + 2 * _LABEL_SPACE)
    result = Layout()
    middles = _place(columns, gap, result)
    for edge, chain in chains.items():
        points = [point for item in chain for point in _sides(item, ranks, gap, middles)]
        result.edges[edge] = points[1:-1]
    by_gap: dict[int, list[Edge]] = {}
    for edge in edges:
        if edge in labels:
            fans_out = sum(each[0] == edge[0] for each in edges)
            fans_in = sum(each[1] == edge[1] for each in edges)
            points = result.edges[edge]
            near, other = (points[-1], points[-2]) if fans_out >= fans_in else points[:2]
            result.labels[edge] = (near[0] + other[0]) // 2, near[1] - 8
            by_gap.setdefault(result.labels[edge][0], []).append(edge)
    for group in by_gap.values():
        _move_apart(group, result)
    return result


def _chain(edge: Edge, ranks: Mapping[str, int]) -> list[Item]:
    """Return the start node of an edge, its slots in the columns it crosses, and its end."""
    start, end = edge
    return [start, *((edge, rank) for rank in range(ranks[start] + 1, ranks[end])), end]


def _rank(item: Item, ranks: Mapping[str, int]) -> int:
    return ranks[item] if isinstance(item, str) else item[1]


def _columns(ranks: Mapping[str, int], chains: Mapping[Edge, list[Item]]) -> list[list[Item]]:
    """Return the items of each column, in an order with few edge crossings."""
    columns: list[list[Item]] = [[] for _ in range(max(ranks.values(), default=-1) + 1)]
    before: dict[Item, list[Item]] = {}
    after: dict[Item, list[Item]] = {}
    for node, rank in ranks.items():
        columns[rank].append(node)
    for chain in chains.values():
        for item in chain[1:-1]:
            columns[_rank(item, ranks)].append(item)
        for left, right in pairwise(chain):
            before.setdefault(right, []).append(left)
            after.setdefault(left, []).append(right)
    for sweep in range(_SWEEPS):
        neighbours = before if sweep % 2 == 0 else after
        for column in columns if sweep % 2 == 0 else reversed(columns):
            _sort(column, neighbours, columns, ranks)
    return columns


def _sort(
    column: list[Item],
    neighbours: Mapping[Item, list[Item]],
    columns: list[list[Item]],
    ranks: Mapping[str, int],
) -> None:
    """Sort a column by the mean position of the neighbours of its items."""
    means: dict[Item, float] = {}
    for position, item in enumerate(column):
        near = neighbours.get(item, ())
        positions = [columns[_rank(each, ranks)].index(each) for each in near]
        means[item] = sum(positions) / len(positions) if positions else position
    column.sort(key=means.__getitem__)


def _place(columns: list[list[Item]], gap: int, result: Layout) -> dict[Item, int]:
    """Set the corner of every node; return the vertical middle of each item."""
    heights = [sum(_height(item) + _GAP_Y for item in column) - _GAP_Y for column in columns]
    tallest = max(heights, default=0)
    middles: dict[Item, int] = {}
    for number, column in enumerate(columns):
        y = MARGIN + (tallest - heights[number]) // 2
        for item in column:
            middles[item] = y + _height(item) // 2
            if isinstance(item, str):
                result.nodes[item] = MARGIN + number * (NODE_WIDTH + gap), y
            y += _height(item) + _GAP_Y
    result.width = 2 * MARGIN + len(columns) * (NODE_WIDTH + gap) - gap
    result.height = 2 * MARGIN + tallest
    return middles


def _height(item: Item) -> int:
    return NODE_HEIGHT if isinstance(item, str) else _SLOT_HEIGHT


def _sides(
    item: Item, ranks: Mapping[str, int], gap: int, middles: Mapping[Item, int]
) -> tuple[Point, Point]:
    """Return the points at which edges enter and leave an item."""
    x = MARGIN + _rank(item, ranks) * (NODE_WIDTH + gap)
    return (x, middles[item]), (x + NODE_WIDTH, middles[item])


def _move_apart(group: list[Edge], result: Layout) -> None:
    """Move labels between the same two columns down until none overlap."""
    lowest = LABEL_HEIGHT
    for edge in sorted(group, key=lambda edge: result.labels[edge][1]):
        x, y = result.labels[edge]
        result.labels[edge] = x, max(y, lowest)
        lowest = result.labels[edge][1] + LABEL_HEIGHT
    result.height = max(result.height, lowest + MARGIN // 2)
