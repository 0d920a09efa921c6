"""Which modules a pipeline's own code is in; they travel to executors that lack them."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from pillarbox.pipeline.graph import Graph


def modules_of(graph: Graph) -> Iterator[str]:
    """The top-level modules that the functions and body types of a graph come from."""
    named = [each.function for each in graph.processors] + [log.body_type for log in graph.logs]
    for each in named:
        top = (getattr(each, "__module__", None) or "").partition(".")[0]
        if top and top not in sys.stdlib_module_names:
            yield top
