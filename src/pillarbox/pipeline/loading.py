"""Loads the Pipeline that `module:pipeline` on a command line names."""

from __future__ import annotations

import importlib
import os
import sys
from types import ModuleType

from pillarbox.pipeline.errors import PipelineError
from pillarbox.pipeline.pipeline import Pipeline


def load(target: str) -> Pipeline:
    """Import a module from the current directory or `sys.path`, and return its pipeline.

    Without a name after the colon, the module must have exactly one pipeline.
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
            " module:pipeline, and run the command in the directory of the module"
        ) from error
    if attribute:
        pipeline = getattr(module, attribute, None)
        if not isinstance(pipeline, Pipeline):
            raise PipelineError(
                f"there is no pipeline {attribute!r} in {module_name!r}; it has {_names(module)}"
            )
        return pipeline
    pipelines = [value for value in vars(module).values() if isinstance(value, Pipeline)]
    if len(set(map(id, pipelines))) != 1:
        raise PipelineError(
            f"give the name of a pipeline in {module_name!r}; it has {_names(module)}"
        )
    return pipelines[0]


def _names(module: ModuleType) -> str:
    names = [name for name, value in vars(module).items() if isinstance(value, Pipeline)]
    return ", ".join(names) or "none"
