"""What can be known of a pipeline before it runs, without a cluster.

findings         errors and warnings, with place and remedy
beforehand       all checks that call no function of the user
first_rows       which steps fail on no rows, and on the first rows of the sources
repeatability    functions that look as if a repeat could give something else
sizing           whether it fits the driver, the nodes and the memory of hosts
"""

from rekindle_spark.checks.beforehand import beforehand
from rekindle_spark.checks.findings import Finding, Severity
from rekindle_spark.checks.first_rows import first_rows

__all__ = ["Finding", "Severity", "beforehand", "first_rows"]
