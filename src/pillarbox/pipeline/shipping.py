"""Which modules a pipeline's own code is in; they travel to executors that lack them.

Those are the modules that its functions and types come from, and those that were loaded from
beside them, which they may use. What is installed is not taken along.
"""

from __future__ import annotations

import os
import sys
import sysconfig
from types import ModuleType

from pillarbox.pipeline.graph import Graph


def modules_of(graph: Graph) -> set[str]:
    """The top-level modules of a graph's functions and body types, and those beside them."""
    named = [each.function for each in graph.processors] + [log.body_type for log in graph.logs]
    tops = {(getattr(each, "__module__", None) or "").partition(".")[0] for each in named}
    found = {top for top in tops if top and top not in sys.stdlib_module_names}
    places = {_directory(sys.modules[top]) for top in found} - _INSTALLED - {None}
    beside = {
        name
        for name, module in list(sys.modules.items())
        if "." not in name and _directory(module) in places
    }
    return found | beside


_INSTALLED = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}


def _directory(module: ModuleType) -> str | None:
    """Where a top-level module or package lies."""
    paths = list(getattr(module, "__path__", ())) or [getattr(module, "__file__", None)]
    return os.path.dirname(os.path.abspath(paths[0])) if paths[0] else None
