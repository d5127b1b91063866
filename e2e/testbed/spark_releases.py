"""Releases of Spark other than the project's own, for tests: installed by pip, once for all clones.

    CACHE/programs/spark-3.5.9/site/     pyspark, with its jars, and the py4j that it asks for

A process whose PYTHONPATH begins with `site` runs on that release, and has all other packages of
the project. A release is whole in its folder or not there at all; a second installer waits for the
first. Where pip cannot get one, the others are installed.
"""

import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from rekindle.model.errors import RekindleError
from rekindle_local import cached_files
from testbed import program_runs, test_programs, workshops

# The newest of each series that protected queries are for, but for the project's own.
RELEASES = ("3.5.9", "4.0.5", "4.1.4", "4.2.1")
SITE = "site"
INSTALL_SECONDS_MAX = 1_800.0
REMEDY = (
    "see whether pip reaches a package index and 2 GB of disk are free, then run "
    "`make spark-releases`"
)


def find(release: str) -> Path | None:
    """The folder to put first on PYTHONPATH; None where the release is not installed."""
    folder = _folder(release)
    if not (folder / SITE).is_dir():
        return None
    cached_files.mark_used(folder)
    return folder / SITE


def install(releases: Sequence[str], progress: Callable[[str], None]) -> list[RekindleError]:
    """Install those that are missing; returns an error for each that cannot be installed."""
    failures = []
    for release in releases:
        try:
            _install(release, progress)
        except RekindleError as error:
            failures.append(error)
    cached_files.remove_unused(_folder("").parent, now=time.time(), progress=progress)
    return failures


def _install(release: str, progress: Callable[[str], None]) -> None:
    folder = _folder(release)
    if find(release) is not None:
        return
    with workshops.alone(folder, progress), workshops.opened(folder) as workshop:
        if find(release) is not None:  # another process was waited for
            return
        progress(f"installing Spark {release} into {folder}: 500 MB, a minute, once")
        command = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check"]
        command += ["--no-compile", "--target", str(workshop / SITE), f"pyspark=={release}"]
        program_runs.run(
            command,
            where=f"pip install pyspark=={release}",
            remedy=REMEDY,
            seconds_max=INSTALL_SECONDS_MAX,
            env={key: value for key, value in os.environ.items() if key != "PYTHONPATH"},
        )
        (workshop / SITE).rename(folder / SITE)


def _folder(release: str) -> Path:
    cache = test_programs.cache_folder(os.environ)
    return cache / test_programs.PROGRAMS_FOLDER / f"spark-{release}"
