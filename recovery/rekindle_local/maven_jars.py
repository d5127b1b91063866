"""Jars that Maven fetches once into the user's cache, used only while they are intact.

`kafka_broker` has those of the broker here, the laboratory those of what it compares.
"""

import os
import shutil
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from rekindle.model.errors import InputError
from rekindle_local import cached_files

FETCH_SECONDS_MAX = 600.0
# Lists the jars; it is put last.
LIST = "jars"
REMEDY = "install Maven (mvn), and see that it reaches a repository"
_POM = """
<project>
  <modelVersion>4.0.0</modelVersion>
  <groupId>local</groupId><artifactId>jars</artifactId><version>1</version>
  <packaging>pom</packaging>
  <dependencies>{dependencies}</dependencies>
</project>
"""


@dataclass(frozen=True, slots=True)
class JarSet:
    """Jars as messages name them, their folder in the cache, how large they are, and the
    `dependencies` of a project of Maven that has them at run time."""

    title: str
    folder: str
    megabytes: int
    dependencies: str

    def find(
        self,
        environment: Mapping[str, str] = os.environ,
        progress: Callable[[str], None] = cached_files.say,
    ) -> Path:
        """The folder with the jars, which are fetched where they are not there.

        Raises InputError where they cannot be fetched.
        """
        folder = cached_files.find_folder(environment) / self.folder
        with cached_files.locked(folder, progress):
            if not _are_intact(folder):
                progress(f"fetching {self.title} with Maven, {self.megabytes} MB")
                self._fetch(folder)
        cached_files.mark_used(folder)
        return folder

    def _fetch(self, folder: Path) -> None:
        maven = shutil.which("mvn")
        if maven is None:
            raise self._unfetched("are not there, and Maven (mvn) is not installed")
        with cached_files.workshop(folder) as workshop:
            (workshop / "pom.xml").write_text(_POM.format(dependencies=self.dependencies))
            options = (f"-DoutputDirectory={workshop}/found", "-DincludeScope=runtime")
            command = [maven, "-q", "-B", "dependency:copy-dependencies", *options]
            try:
                done = subprocess.run(
                    command, cwd=workshop, timeout=FETCH_SECONDS_MAX, capture_output=True, text=True
                )
            except subprocess.TimeoutExpired as error:
                what = f"were not fetched within {FETCH_SECONDS_MAX:.0f} s"
                raise self._unfetched(what) from error
            made = sorted((workshop / "found").glob("*.jar"))
            if done.returncode or not made:
                lines = (done.stdout + done.stderr).strip().splitlines() or ["no jars"]
                raise self._unfetched(f"could not be fetched ({lines[0]:.300})")
            for jar in made:
                cached_files.put(jar, folder / jar.name)
            (workshop / LIST).write_text("\n".join(jar.name for jar in made))
            cached_files.put(workshop / LIST, folder / LIST)

    def _unfetched(self, what: str) -> InputError:
        return InputError(where=f"the jars of {self.title}", what=what, remedy=REMEDY)


def _are_intact(folder: Path) -> bool:
    listed = folder / LIST
    return cached_files.is_intact(listed) and all(
        cached_files.is_intact(folder / name) for name in listed.read_text().split()
    )
