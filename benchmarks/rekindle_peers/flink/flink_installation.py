"""The Flink that is installed, and the job's classes compiled against it.

Its jars are those of the package apache-flink-libraries, which is an extra of ours: it is big, and
nothing but the comparison needs it. Starts nothing but the compiler.
"""

from dataclasses import dataclass
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

from rekindle.model.errors import InputError
from rekindle_local import spark_distribution
from rekindle_spark.spark.jvm_build import Jar

PACKAGE = "apache-flink-libraries"
FOLDER = Path(__file__).parent / "jvm"
JAR = FOLDER / "rekindle-flink.jar"
# What Flink reaches into of the JDK, by reflection: serializers, and the clean-up of closures.
OPENED = ("lang", "lang.reflect", "net", "nio", "text", "time", "util", "util.concurrent")


@dataclass(frozen=True, slots=True)
class Installation:
    """A Java, the folder of Flink's jars, and the jar of the job."""

    java: Path
    libraries: Path
    jar: Path

    def command(self, main: str, options: tuple[str, ...]) -> list[str]:
        """The command line of a JVM with all these classes, but for its arguments."""
        opened = (f"--add-opens=java.base/java.{part}=ALL-UNNAMED" for part in OPENED)
        class_path = f"{self.jar}:{self.libraries}/*"
        return [str(self.java), *options, *opened, "-cp", class_path, main]


def is_installed() -> bool:
    """Whether Flink's jars are there."""
    try:
        _libraries()
    except InputError:
        return False
    return True


def find() -> Installation:
    """Look for Java and Flink, and build the job's jar when it is not current.

    Raises `InputError` where one is missing, `RunError` when the job does not compile.
    """
    libraries, _ = _libraries()
    java, _ = spark_distribution.find_java()
    return Installation(java, libraries, Path(Jar(JAR, FOLDER, "Flink", _libraries).path()))


def _libraries() -> tuple[Path, str]:
    """The folder of Flink's jars, and its version."""
    found = find_spec("pyflink")
    for folder in (found.submodule_search_locations or ()) if found else ():
        jars = Path(folder) / "lib"
        if any(jars.glob("flink-dist-*.jar")):
            return jars, metadata.version(PACKAGE)
    raise InputError(
        where=PACKAGE,
        what="is not installed",
        remedy="install it with `make flink`, or `pip install 'rekindle-lab[flink]'`",
    )
