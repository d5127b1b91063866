"""Checks of a pipeline before it runs, without a cluster.

check_findings  errors and warnings, with place and remedy
static_checks   all checks that call no function of the user: structure, paths, sizes
first_rows      which steps fail on no rows, and on the first rows of the sources
repeatability   functions that look as if a repeat could give something else
"""

from rekindle_spark.checks.check_findings import CheckFinding, CheckSeverity
from rekindle_spark.checks.first_rows import first_rows
from rekindle_spark.checks.static_checks import beforehand

__all__ = ["CheckFinding", "CheckSeverity", "beforehand", "first_rows"]
