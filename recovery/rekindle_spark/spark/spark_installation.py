"""The Spark on this machine: Java, the installed pyspark, and the folder that SPARK_HOME names.

The command line calls it before it tries a pipeline or starts a process. Spark itself only reports
that its gateway has ended, and names neither.
"""

import re
from importlib import metadata
from pathlib import Path

from rekindle.model.errors import InputError
from rekindle_spark.spark import java_home

# The runtime's Java is compiled against it; `rekindle[spark]` installs it.
VERSION = "4.3"


def check(spark_home: str | None) -> None:
    """Refuse a machine on which Spark cannot start.

    `spark_home` is the value of SPARK_HOME, None where it does not count. Raises `InputError`.
    """
    check_pyspark()
    java_home.read_version(java_home.find())
    if spark_home:
        _check_home(spark_home)


def check_pyspark() -> None:
    """Refuse a pyspark of another version. Raises `InputError`.

    One that is missing, or that pip did not install, is not refused here.
    """
    try:
        found = metadata.distribution("pyspark")
    except metadata.PackageNotFoundError:
        return
    if not _fits(found.version):
        raise InputError(
            where=f"pyspark in {found.locate_file('')}",
            what=f"is version {found.version}, needed is {VERSION}",
            remedy=f"pip install 'pyspark=={VERSION}.*', or use an environment with nothing but "
            "rekindle[spark]",
        )


def _check_home(home: str) -> None:
    """Spark's scripts in this folder would start the driver's JVM, whatever pyspark says."""
    jars = Path(home, "jars").glob("spark-core_*.jar")
    versions = [re.sub(r"spark-core_[^-]*-|\.jar$", "", jar.name) for jar in jars]
    if not versions:
        what = "is no installation of Spark"
    elif not _fits(versions[0]):
        what = f"is Spark {versions[0]}, needed is {VERSION}"
    else:
        return
    raise InputError(
        where=f"SPARK_HOME {home}",
        what=what,
        remedy=f"unset SPARK_HOME, or let it name a Spark {VERSION}",
    )


def _fits(version: str) -> bool:
    return version.split(".")[:2] == VERSION.split(".")
