"""A Java class of a test beside the runtime's own, compiled and ready to be run."""

import subprocess
from pathlib import Path

from rekindle_spark.spark import jvm_build

COMPILE_SECONDS_MAX = 300


def command(folder: Path, source: str, *, spark: bool = False) -> list[str]:
    """Compile the class `rekindle.Probe` into a folder, which takes its temporary files too; the
    command that runs it, to be continued with its arguments. `spark`: it uses classes of Spark's.
    """
    (folder / "Probe.java").write_text(source)
    classes = jvm_build.path()
    if spark:
        classes = f"{classes}:{jvm_build.spark_libraries()[0]}/*"
    compile_: list[str | Path] = ["javac", "-cp", classes, "-d", folder, folder / "Probe.java"]
    subprocess.run(compile_, check=True, timeout=COMPILE_SECONDS_MAX)
    return ["java", f"-Djava.io.tmpdir={folder}", "-cp", f"{classes}:{folder}", "rekindle.Probe"]
