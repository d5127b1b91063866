"""Runs a pipeline on given tables in this process, without Spark: for tests of pipelines.

    from rekindle_spark.testing import run_pipeline

        outputs = run_pipeline(pipeline(), {"requests": rows}, epochs=3)
        assert outputs["failures"].num_rows == 2

    in_process_driver  the driver: cuts epochs, and runs each partition with the code of executors
    table_source       a source that gives the rows of an Arrow table

It is no second engine. What a pipeline gives here it gives on a cluster, from the same input.
"""

from rekindle_spark.testing.in_process_driver import PipelineResult, run, run_pipeline
from rekindle_spark.testing.table_source import TableSource, check_times

__all__ = ["PipelineResult", "TableSource", "check_times", "run", "run_pipeline"]
