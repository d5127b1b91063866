"""Builds the Java classes of the runtime into one jar, and says where it is.

    python -m rekindle_spark.spark.jvm_build    builds it when it is not current (`make setup`)
    jvm_build.path()                            for `spark.jars`; the driver and tests call it

The sources lie in `jvm/` and are compiled against the jars of the pyspark that is installed. The
manifest of a jar carries a digest of the sources and the version of the libraries that they are
compiled against, so a jar is current or it is not, whatever the clocks of the files say. The same
sources, libraries and compiler give the same bytes. A wheel ships jars without their sources; there
nothing is compiled and no JDK is needed. `Jar` builds those beside other systems' sources as well.
"""

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

from rekindle.model.errors import InputError, RekindleError, RunError

JAVA_VERSION = 17
MANIFEST = "META-INF/MANIFEST.MF"
# The earliest moment that a zip can hold: file times would make every build different.
EPOCH = (1980, 1, 1, 0, 0, 0)


@dataclass(frozen=True, slots=True)
class Jar:
    """A jar at `file`, of the sources in `folder`.

    `libraries` finds the folder of jars that they are compiled against, and their version; `system`
    is whose they are, as the manifest says it.
    """

    file: Path
    folder: Path
    system: str
    libraries: Callable[[], tuple[Path, str]]

    def path(self) -> str:
        """Where the jar is; builds it first when the sources have changed.

        Raises `InputError` when it has to be built and cannot be.
        """
        if not self.sources():
            if self.file.exists():
                return str(self.file)
            raise InputError(
                where=str(self.file),
                what="is missing, and so are its sources",
                remedy="run `make setup`",
            )
        if not self.is_current():
            self.build()
        return str(self.file)

    def is_current(self) -> bool:
        """Whether the jar was built from these sources against these libraries."""
        try:
            with zipfile.ZipFile(self.file) as jar:
                return jar.read(MANIFEST) == self._manifest()
        except (OSError, KeyError, zipfile.BadZipFile):
            return False

    def build(self) -> None:
        """Compiles the sources and puts the jar in place in one step.

        Raises `InputError` without a JDK or the libraries, or where the jar cannot be written,
        `RunError` when the sources do not compile.
        """
        manifest = self._manifest()
        with tempfile.TemporaryDirectory(prefix="rekindle-jar-") as folder:
            classes = Path(folder)
            self._compile(classes)
            fresh = self.file.with_suffix(f".{os.getpid()}.tmp")
            try:
                _pack(classes, manifest, fresh)
                fresh.replace(self.file)
            except OSError as error:
                raise InputError(
                    where=str(self.file),
                    what=f"is missing or out of date, and cannot be written ({error.strerror})",
                    remedy="run `make setup` as its owner, or give its folder rights and room",
                ) from error
            finally:
                with suppress(OSError):
                    fresh.unlink()

    def sources(self) -> list[Path]:
        """The Java files; none in a wheel."""
        return sorted(self.folder.glob("*.java"))

    def _manifest(self) -> bytes:
        digest = hashlib.sha256()
        for source in self.sources():
            digest.update(f"{source.name}\0".encode() + source.read_bytes() + b"\0")
        _, version = self.libraries()
        lines = (
            "Manifest-Version: 1.0",
            # Half of the digest: a line of a manifest ends after 72 bytes.
            f"Rekindle-Sources: {digest.hexdigest()[:32]}",
            f"{self.system}-Version: {version}",
        )
        return "".join(f"{line}\r\n" for line in (*lines, "")).encode()

    def _compile(self, classes: Path) -> None:
        jars, _ = self.libraries()
        command = [_compiler(), "--release", str(JAVA_VERSION), "-nowarn", "-Xlint:none"]
        command += ["-proc:none", "-encoding", "UTF-8", "-cp", f"{jars}/*", "-d", str(classes)]
        run = subprocess.run(
            [*command, *map(str, self.sources())], capture_output=True, text=True, check=False
        )
        if run.returncode:
            raise RunError(
                where=str(self.folder),
                what=f"javac ends with {run.returncode}:\n{(run.stdout + run.stderr).strip()}\n",
                remedy="correct the sources that it names",
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


def _pack(classes: Path, manifest: bytes, to: Path) -> None:
    names = sorted(file.relative_to(classes).as_posix() for file in classes.rglob("*.class"))
    with zipfile.ZipFile(to, "w") as jar:
        for name in (MANIFEST, *names):
            entry = zipfile.ZipInfo(name, EPOCH)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o644 << 16
            jar.writestr(entry, manifest if name == MANIFEST else (classes / name).read_bytes())


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
