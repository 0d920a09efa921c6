"""From `module:pipeline` on a command line to the Pipeline that it names."""

from __future__ import annotations

import importlib
import os
import sys

from pillarbox.pipeline.errors import PipelineError
from pillarbox.pipeline.pipeline import Pipeline


def load(target: str) -> Pipeline:
    """Import a module from here or from the path, and find its pipeline.

    Without a name after the colon, the module must have exactly one.
    """
    module_name, _, attribute = target.partition(":")
    module_name = module_name.removesuffix(".py").replace(os.sep, ".").strip(".")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if not module_name.startswith(error.name or " "):
            raise
        raise PipelineError(
            f"there is no module {module_name!r} here or on the path; name a pipeline as"
            " module:pipeline, from the directory that has the module"
        ) from error
    if attribute:
        found = getattr(module, attribute, None)
        if not isinstance(found, Pipeline):
            raise PipelineError(f"{attribute!r} in {module_name!r} is not a Pipeline: {found!r}")
        return found
    all_found = {name: value for name, value in vars(module).items() if isinstance(value, Pipeline)}
    if len(set(map(id, all_found.values()))) != 1:
        names = ", ".join(all_found) or "none"
        raise PipelineError(f"say which pipeline of {module_name!r}: it has {names}")
    return next(iter(all_found.values()))
