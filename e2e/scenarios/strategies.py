"""What a scenario runs with, by name: a strategy of a RecoveryPolicy, or ordinary Spark alone."""

from rekindle.model.settings import BLOCKING, INCREMENTAL

__all__ = ["BLOCKING", "INCREMENTAL", "NAMES", "SPARK_ALONE"]

SPARK_ALONE = "structured-streaming"
NAMES = (INCREMENTAL, BLOCKING, SPARK_ALONE)
