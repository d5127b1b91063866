"""Builds the Java classes of the runtime into one jar, and says where it is.

    python -m rekindle_spark.spark.jvm_build        builds it when it is not current (`make setup`
    does this) jar.path()                          for `spark.jars`; called by the driver and by
    tests

The sources lie in `jvm/` and are compiled against the jars of the pyspark that is installed
(`jar_compiler`).
"""

import os
import sys
from contextlib import suppress
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

from rekindle.model.errors import InputError, RekindleError
from rekindle_spark.spark.jar_compiler import Jar

FOLDER = Path(__file__).parent / "jvm"
JAR = FOLDER / "rekindle-exchange.jar"


def path() -> str:
    """Where the jar is; builds it first when the sources beside it have changed.

    Raises `InputError` when it has to be built and cannot be.
    """
    return _jar().path()


def is_current() -> bool:
    """Whether the jar was built from these sources against this pyspark."""
    return _jar().is_current()


def build() -> None:
    """Compiles the sources and puts the jar in place in one step.

    Raises `InputError` without a JDK or pyspark, `RunError` when the sources do not compile.
    """
    _jar().build()


def main() -> int:
    """Builds the jar when it is not current, and prints where it is; returns the exit code."""
    try:
        sources = _jar().sources()
        if sources and not is_current():
            print(f"compiling {len(sources)} Java sources", file=sys.stderr, flush=True)
        print(path())
    except RekindleError as error:
        print(error, file=sys.stderr)
        return 2 if isinstance(error, InputError) else 1
    return 0


def _jar() -> Jar:
    return Jar(JAR, FOLDER, "Spark", spark_libraries)


def spark_libraries() -> tuple[Path, str]:
    """The folder of pyspark's jars, and its version. Raises `InputError` where it has none."""
    found = find_spec("pyspark")
    folders = [*(found.submodule_search_locations or ())] if found else []
    # spark-submit puts a pyspark before the installed one that is a zip, and says where Spark is.
    folders += filter(None, [os.environ.get("SPARK_HOME")])
    for folder in folders:
        jars = Path(folder) / "jars"
        with suppress(metadata.PackageNotFoundError):
            if jars.is_dir():
                return jars, metadata.version("pyspark")
    raise InputError(
        where="pyspark",
        what="is not installed, or without its jars",
        remedy="run `make setup` in a clone, or install rekindle[spark]",
    )


if __name__ == "__main__":
    raise SystemExit(main())
