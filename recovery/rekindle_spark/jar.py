"""Builds the Java classes of the runtime into one jar, and says where it is.

    python -m rekindle_spark.jar        builds it when it is not current (`make setup` does this)
    jar.path()                          for `spark.jars`; called by the driver and by tests

The sources lie in `jvm/` and are compiled against the jars of the pyspark that is installed. The
manifest carries a digest of the sources and that pyspark's version, so a jar is current or it is
not, whatever the clocks of the files say. The same sources, pyspark and compiler give the same
bytes. A wheel ships the jar without the sources; there nothing is compiled and no JDK is needed.
"""

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from contextlib import suppress
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

from rekindle.errors import InputError, RekindleError, RunError

__all__ = ["build", "is_current", "main", "path"]

FOLDER = Path(__file__).parent / "jvm"
JAR = FOLDER / "rekindle-exchange.jar"
JAVA_VERSION = 17
MANIFEST = "META-INF/MANIFEST.MF"
# The earliest moment that a zip can hold: file times would make every build different.
EPOCH = (1980, 1, 1, 0, 0, 0)


def path() -> str:
    """Where the jar is; builds it first when the sources beside it have changed.

    Raises `InputError` when it has to be built and cannot be.
    """
    if not _sources():
        if JAR.exists():
            return str(JAR)
        raise InputError(
            where=str(JAR), what="is missing, and so are its sources", remedy="run `make setup`"
        )
    if not is_current():
        build()
    return str(JAR)


def is_current() -> bool:
    """Whether the jar was built from these sources against this pyspark."""
    try:
        with zipfile.ZipFile(JAR) as jar:
            return jar.read(MANIFEST) == _manifest()
    except (FileNotFoundError, KeyError, zipfile.BadZipFile):
        return False


def build() -> None:
    """Compiles the sources and puts the jar in place in one step.

    Raises `InputError` without a JDK or pyspark, `RunError` when the sources do not compile.
    """
    manifest = _manifest()
    with tempfile.TemporaryDirectory(prefix="rekindle-jar-") as folder:
        classes = Path(folder)
        _compile(classes)
        fresh = JAR.with_suffix(f".{os.getpid()}.tmp")
        try:
            _pack(classes, manifest, fresh)
            fresh.replace(JAR)
        finally:
            fresh.unlink(missing_ok=True)


def main() -> int:
    """Builds the jar when it is not current; returns the exit code."""
    try:
        if _sources() and not is_current():
            print(f"compiling {len(_sources())} Java sources", flush=True)
        print(path())
    except RekindleError as error:
        print(error, file=sys.stderr)
        return 2 if isinstance(error, InputError) else 1
    return 0


def _sources() -> list[Path]:
    return sorted(FOLDER.glob("*.java"))


def _manifest() -> bytes:
    digest = hashlib.sha256()
    for source in _sources():
        digest.update(f"{source.name}\0".encode() + source.read_bytes() + b"\0")
    _, version = _spark()
    lines = (
        "Manifest-Version: 1.0",
        # Half of the digest: a line of a manifest ends after 72 bytes.
        f"Rekindle-Sources: {digest.hexdigest()[:32]}",
        f"Spark-Version: {version}",
    )
    return "".join(f"{line}\r\n" for line in (*lines, "")).encode()


def _spark() -> tuple[Path, str]:
    """The folder of pyspark's jars, and its version."""
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


def _compiler() -> str:
    home = os.environ.get("JAVA_HOME")
    javac = shutil.which("javac", path=f"{home}/bin") if home else None
    javac = javac or shutil.which("javac")
    if javac is None:
        raise _no_jdk("is not to be found")
    asked = subprocess.run([javac, "-version"], capture_output=True, text=True, check=False)
    said = (asked.stdout + asked.stderr).strip()
    version = re.search(r"javac (\d+)", said)
    if version is None or int(version[1]) < JAVA_VERSION:
        raise _no_jdk(f"is {said or 'broken'} ({javac})")
    return javac


def _no_jdk(what: str) -> InputError:
    return InputError(
        where="javac",
        what=what,
        remedy=f"install a JDK {JAVA_VERSION} or newer, on Debian "
        f"`apt-get install openjdk-{JAVA_VERSION}-jdk-headless`, then run `make setup`",
    )


def _compile(classes: Path) -> None:
    jars, _ = _spark()
    command = [_compiler(), "--release", str(JAVA_VERSION), "-nowarn", "-Xlint:none", "-proc:none"]
    command += ["-encoding", "UTF-8", "-cp", f"{jars}/*", "-d", str(classes)]
    run = subprocess.run(
        [*command, *map(str, _sources())], capture_output=True, text=True, check=False
    )
    if run.returncode:
        raise RunError(
            where=str(FOLDER),
            what=f"javac ends with {run.returncode}:\n{(run.stdout + run.stderr).strip()}\n",
            remedy="correct the sources that it names",
        )


def _pack(classes: Path, manifest: bytes, to: Path) -> None:
    names = sorted(file.relative_to(classes).as_posix() for file in classes.rglob("*.class"))
    with zipfile.ZipFile(to, "w") as jar:
        for name in (MANIFEST, *names):
            entry = zipfile.ZipInfo(name, EPOCH)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o644 << 16
            jar.writestr(entry, manifest if name == MANIFEST else (classes / name).read_bytes())


if __name__ == "__main__":
    raise SystemExit(main())
