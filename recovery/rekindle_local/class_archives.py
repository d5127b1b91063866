"""Where the class-data archives lie with which workers and executors start in half the time.

An archive holds classes parsed and verified (JDK 17: `-XX:ArchiveClassesAtExit`). At its start the
JVM checks that version and class path are those of the dump, each jar with its path, size and
time, and runs without the archive where they are not. So clones with virtual environments of their
own can share an archive only if they share the jars too:

    CACHE/DIGEST/
        spark/             jars and Python of Spark, as hard links to those of some clone
        configuration/     empty, the first entry of the class path
        daemon.jsa, executor.jsa, and their digests

The digest is of the Java and of the digests that the wheel records for its jars. Where a clone's
jars are not those of its wheel, or there is no such record, the digest is of their path instead,
and the archives are that clone's alone.

class_data_training.py makes the archives, spark_cluster.py uses them. An archive that is damaged
counts as missing: a JVM that is given one that was cut short dies.

Measured on two cores, CPU until registered: worker 2.6 s without, 1.4 s with; executor 3.8 s
without, 1.7 s with.

What a wheel recorded about its files when pip installed it: path, digest and size.

class_archives.py takes the identity of Spark's jars from it, instead of reading 400 MB each time a
cluster starts.
"""

import base64
import csv
import hashlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from rekindle.model.errors import InputError
from rekindle_local import cached_files
from rekindle_local.spark_distribution import Distribution

ALGORITHM = "sha256="


@dataclass(frozen=True, slots=True)
class Recorded:
    """A file of a package: `path` below the package's folder, `digest` as the wheel writes it."""

    path: str
    digest: str
    size_bytes: int


def read_record(package: Path) -> tuple[Recorded, ...]:
    """Returns the files of an installed package, in the order of their paths.

    `package` is its folder. Nothing where no record of it lies beside that folder, as with an
    installation that pip did not make.
    """
    records = [*package.parent.glob(f"{package.name}-*.dist-info/RECORD")]
    if len(records) != 1:
        return ()
    with records[0].open(encoding="utf-8", newline="") as lines:
        return tuple(sorted(_parse(lines, f"{package.name}/"), key=lambda file: file.path))


def has_recorded_digest(file: Path, recorded: Recorded) -> bool:
    """Whether a file has the content that the wheel had."""
    with file.open("rb") as content:
        digest = hashlib.file_digest(content, "sha256").digest()
    text = base64.urlsafe_b64encode(digest).decode().rstrip("=")
    return recorded.digest == f"{ALGORITHM}{text}"


def _parse(lines: Iterator[str], prefix: str) -> Iterator[Recorded]:
    for row in csv.reader(lines):
        match row:
            case [path, digest, size] if (
                path.startswith(prefix) and digest.startswith(ALGORITHM) and size.isdecimal()
            ):
                yield Recorded(path.removeprefix(prefix), digest, int(size))


JARS = "jars/"
# What a cluster needs below pyspark's folder.
SHARED = (JARS, "python/lib/")


@dataclass(frozen=True, slots=True)
class ClassArchives:
    """The archives of one Java and one Spark, there or not.

    `installed` is the distribution of this clone, `recorded` the files of its Spark as far as
    clones can share them. The folder of the configuration must not move: its path is part of what
    an archive is valid for.
    """

    directory: Path
    installed: Distribution
    recorded: tuple[Recorded, ...]

    @property
    def configuration(self) -> Path:
        return self.directory / "configuration"

    @property
    def daemon(self) -> Path:
        return self.directory / "daemon.jsa"

    @property
    def executor(self) -> Path:
        return self.directory / "executor.jsa"

    @property
    def spark_home(self) -> Path:
        """Where clones share Spark's files."""
        return self.directory / "spark"

    @property
    def distribution(self) -> Distribution:
        """The distribution that the archives are valid for: with the shared Spark, once it is
        there."""
        if self.recorded and _is_whole(self.spark_home, self.recorded):
            return replace(self.installed, spark_home=self.spark_home)
        return self.installed

    @property
    def complete(self) -> bool:
        """Whether both archives are there and intact, and so is the Spark that they are for."""
        return all(
            (
                not self.recorded or _is_whole(self.spark_home, self.recorded),
                cached_files.is_intact(self.daemon),
                cached_files.is_intact(self.executor),
            )
        )


def default_cache(environment: Mapping[str, str] = os.environ) -> Path:
    """Returns the folder for archives in the user's cache."""
    return cached_files.find_folder(environment) / "class-archives"


def find_class_archives(cache: Path, distribution: Distribution) -> ClassArchives:
    """Returns the place in `cache` for the archives of this Java and this Spark."""
    home = distribution.spark_home
    recorded = tuple(file for file in read_record(home) if file.path.startswith(SHARED))
    if _is_whole(home, recorded):
        spark = "\0".join(f"{file.path}={file.digest}" for file in recorded)
    else:
        recorded = ()
        spark = f"{home}\0{(home / 'jars').stat().st_mtime_ns}"
    identity = "\0".join((str(distribution.java.resolve()), distribution.java_version, spark))
    directory = cache / hashlib.sha256(identity.encode()).hexdigest()[:16]
    cached_files.mark_used(directory)
    return ClassArchives(directory, distribution, recorded)


def link_spark(archives: ClassArchives, workshop: Path) -> None:
    """Puts the shared Spark in place, made in a workshop of the archives' locked folder.

    Nothing is done where clones cannot share it. Raises `InputError` when a file of this clone is
    not what its wheel contained, `OSError` when the cache cannot be written.
    """
    if not archives.recorded or _is_whole(archives.spark_home, archives.recorded):
        return
    made = workshop / "spark"
    for file in archives.recorded:
        source, target = archives.installed.spark_home / file.path, made / file.path
        if not has_recorded_digest(source, file):
            raise InputError(
                where=str(source),
                what="is not the file that its wheel contained",
                remedy="run `make clean setup`, or reinstall pyspark",
            )
        target.parent.mkdir(parents=True, exist_ok=True)
        cached_files.link_or_copy(source, target)
    if archives.spark_home.exists():
        archives.spark_home.rename(workshop / "damaged")
    made.rename(archives.spark_home)


def archive_option(archive: Path) -> tuple[str, ...]:
    """Returns the JVM's option to use an archive; none where there is no intact one."""
    return (f"-XX:SharedArchiveFile={archive}",) if cached_files.is_intact(archive) else ()


def _is_whole(spark_home: Path, recorded: tuple[Recorded, ...]) -> bool:
    """Whether these and no other jars are there, each with its size."""
    sizes = {file.path: file.size_bytes for file in recorded}
    jars = {path for path in sizes if path.startswith(JARS)}
    try:
        found = (path for path in (spark_home / JARS).rglob("*") if not path.is_dir())
        return jars == {path.relative_to(spark_home).as_posix() for path in found} and all(
            (spark_home / path).stat().st_size == size for path, size in sizes.items()
        )
    except OSError:
        return False
