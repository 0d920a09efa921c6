"""Pipelines: graphs of processors over logs, run by Spark, exactly once.

Importing this needs no Spark; running does: `pip install 'pillarbox[spark]'`.
"""

from pillarbox.pipeline.errors import PipelineError, PipelineRunningError
from pillarbox.pipeline.failures import Failure
from pillarbox.pipeline.graph import Graph, LogRef, Processor
from pillarbox.pipeline.pipeline import Pipeline

__all__ = [
    "Failure",
    "Graph",
    "LogRef",
    "Pipeline",
    "PipelineError",
    "PipelineRunningError",
    "Processor",
]
