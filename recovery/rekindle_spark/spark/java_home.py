"""The Java on this machine: JAVA_HOME, then PATH, as Spark looks for it.

The driver calls it before Spark starts, for Spark only says that its gateway has ended; the local
cluster calls it for its own processes.
"""

import os
import re
import shutil
import subprocess
from pathlib import Path

from rekindle.model.errors import InputError

VERSION_MIN = 17
VERSION_SECONDS_MAX = 60.0


def find() -> Path:
    """Look for java. Raises `InputError` where there is none."""
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=str(Path(home, "bin")) if home else None)
    if found is None:
        raise InputError(
            where=f"JAVA_HOME {home}" if home else "PATH",
            what="there is no java",
            remedy=f"install a JDK {VERSION_MIN} or newer, or point JAVA_HOME to one",
        )
    return Path(found)


def read_version(java: Path) -> str:
    """Return what `java -version` prints. Raises `InputError` where it is too old, or no Java."""
    try:
        done = subprocess.run(
            [java, "-version"],
            capture_output=True,
            text=True,
            timeout=VERSION_SECONDS_MAX,
            check=False,
        )
        said = done.stderr
    except (OSError, subprocess.TimeoutExpired) as error:
        said = str(error)
    match = re.search(r'version "(\d+)', said)
    if match is None or int(match[1]) < VERSION_MIN:
        raise InputError(
            where=str(java),
            what=f"is not Java {VERSION_MIN} or newer: "
            + (" ".join(said.split())[:200] or "it printed no version"),
            remedy=f"install a JDK {VERSION_MIN} or newer, or point JAVA_HOME to one",
        )
    return said
