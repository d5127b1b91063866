"""The jar with the Java of this comparison: prepared files as a source of Spark, and plain files.

The sources lie in `jvm/` and are compiled against the installed pyspark when they have changed.
"""

from pathlib import Path

from rekindle_spark.spark import jvm_build
from rekindle_spark.spark.jvm_build import Jar

FOLDER = Path(__file__).parent / "jvm"
JAR = FOLDER / "rekindle-replay.jar"


def path() -> str:
    """Build the jar when it is not current; return where it is.

    Raises `InputError` without a JDK or pyspark, `RunError` when the sources do not compile.
    """
    return Jar(JAR, FOLDER, "Spark", jvm_build.spark_libraries).path()
