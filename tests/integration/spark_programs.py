"""Runs a program that has a Spark of its own, in a folder of its own."""

import os
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

# The programs give up before.
LIMIT_SECONDS = 720.0


def run(program: Path, *arguments: str, folder: Path, ahead: Sequence[Path] = ()) -> str:
    """What a program prints; its exit code must be 0. Frames of Java's traces are left out of its
    log, which says why each plan was made. Spark's temporary files lie beside the program. Packages
    in the folders `ahead` come before those of the project, as does the Spark there."""
    temporary = folder / "temporary"
    temporary.mkdir()
    environment = {
        **{key: value for key, value in os.environ.items() if key != "SPARK_HOME"},
        "PYTHONPATH": os.pathsep.join([*map(str, ahead), *sys.path]),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_DIRS": str(temporary),
        "SPARK_SUBMIT_OPTS": shlex.join([f"-Djava.io.tmpdir={temporary}"]),
    }
    command = [sys.executable, str(program), *arguments]
    try:
        ended = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, timeout=LIMIT_SECONDS
        )
        code, out, log = str(ended.returncode), ended.stdout, ended.stderr
    except subprocess.TimeoutExpired as error:
        code, out, log = str(error), error.stdout or b"", error.stderr or b""
    lines = log.decode().splitlines(keepends=True)
    said = [line for line in lines if not line.startswith("\tat ")]
    assert code == "0", f"{code}\n" + out.decode()[-4_000:] + "".join(said)[-8_000:]
    return out.decode()
