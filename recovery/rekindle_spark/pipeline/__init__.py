"""Pipelines: the steps that a user writes, and the program of chains that is made of them.

steps             named steps: sources, map, filter, window, join, stateful, top, sinks
replay            sources that replay files with event time at a chosen speed
unbounded_source  the contract of sources whose future is unknown
program_pickle    a program as the bytes that executors get
program           a pipeline fused into chains and edges, as it is shipped to hosts
chains            what a program is made of: chains and edges
late_outputs      rows that come too late for a keyed step, kept beside
"""

from rekindle_spark.pipeline.steps import (
    Pipeline,
    Source,
    Step,
    Stream,
    count,
    largest,
    mean,
    smallest,
    total,
)

__all__ = ["Pipeline", "Source", "Step", "Stream", "count", "largest", "mean", "smallest", "total"]
