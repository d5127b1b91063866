"""Makes the class-data archives of one Java and one Spark, once for all clones, within a minute.

A cluster of one worker runs a small application (class_data_application.py), and its JVMs write at
their end which classes they loaded. Without the archives everything works too, only slower.

    python -m rekindle_local.class_data_training       makes them unless they are there; `make
    setup` runs it

Exit codes: 0 they are there; with CI=true 1 or 2 where they cannot be made, otherwise that is one
line, and it is not tried again for an hour. A training run that takes too long is one line also
with CI=true, and the next run tries again: a busy machine is no fault, and clusters start without.
"""

import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

from rekindle.model.errors import InputError, RekindleError, RunError, TimeLimitError
from rekindle_local import cached_files, class_archives, process_sets
from rekindle_local.class_archives import ClassArchives
from rekindle_local.class_data_application import finished_archive
from rekindle_local.spark_cluster import LocalCluster
from rekindle_local.spark_distribution import find_distribution

# A busy machine needs five times as long as an idle one.
APPLICATION_SECONDS_MAX = 600.0
DUMP_SECONDS_MAX = 120.0
FAILURE_SECONDS = 3_600.0


def main() -> int:
    """Makes the archives where they are missing; returns the exit code."""
    try:
        make_class_archives()
    except RekindleError as error:
        print(f"NO CLASS-DATA ARCHIVES: clusters start more slowly ({error})", file=sys.stderr)
        if os.environ.get("CI") != "true" or not _is_fault(error):
            return 0
        return 2 if isinstance(error, InputError) else 1
    return 0


def make_class_archives() -> ClassArchives:
    """Makes the archives unless they are there; a second process waits for the first.

    Raises `InputError` without java or pyspark, or where the cache cannot be written, `RunError`
    when the training run fails, or has failed in the last hour.
    """
    cache, say = class_archives.default_cache(), cached_files.say
    archives = class_archives.find_class_archives(cache, find_distribution())
    if archives.complete:
        return archives
    begun = time.time()
    with cached_files.locked(archives.directory, say):
        if not archives.complete:
            _check_last_failure(archives)
            say("making class-data archives, once for this Java and this Spark: a minute")
            _make_or_record_why_not(archives, cache)
            say(f"class-data archives made in {time.time() - begun:.0f} s")
    cached_files.remove_unused(cache, now=time.time(), progress=say)
    return archives


def _check_last_failure(archives: ClassArchives) -> None:
    text = cached_files.newest_failure(archives.directory, time.time() - FAILURE_SECONDS)
    if text:
        record = cached_files.failure_record(archives.directory)
        raise RunError(
            where=str(archives.directory),
            what=f"making them has failed in the last hour ({text})",
            remedy=f"see to that, and remove {record} to try again",
        )


def _make_or_record_why_not(archives: ClassArchives, cache: Path) -> None:
    try:
        with (
            cached_files.recording_failures(archives.directory, is_wanted=_is_fault),
            cached_files.workshop(archives.directory) as workshop,
        ):
            class_archives.link_spark(archives, workshop)
            for damaged in (archives.daemon, archives.executor):
                cached_files.remove(damaged)  # no JVM writes an archive while it uses another
            _train(archives, cache, workshop)
    except OSError as error:
        raise RunError(
            where=str(archives.directory),
            what=f"cannot be written ({error})",
            remedy="see whether its disk is full, and whose it is",
        ) from error


def _is_fault(error: RekindleError) -> bool:
    """A training run that took too long is none: the machine was busy, and the next one may end."""
    return not isinstance(error, TimeLimitError)


def _train(archives: ClassArchives, cache: Path, directory: Path) -> None:
    daemon, executor = directory / "daemon.jsa", directory / "executor.jsa"
    with LocalCluster(
        nodes=1,
        cpu_quota=None,
        directory=directory,
        java_options=(_dump_option(daemon),),
        class_data_cache=cache,
    ) as cluster:
        options = f"{cluster.executor_java_options()} {shlex.quote(_dump_option(executor))}"
        cached_files.say("class-data archives: running a small application")
        _run_application(cluster.master_url, options, executor)
        cached_files.say("class-data archives: writing that of workers")
        _end_worker(cluster)
    for made, place in ((daemon, archives.daemon), (finished_archive(executor), archives.executor)):
        if not _is_usable(made, archives.installed.java):
            raise RunError(
                where=str(place),
                what="the JVM wrote no class-data archive that it can use",
                remedy="try again, or go on without; this JDK must know -XX:ArchiveClassesAtExit",
            )
        cached_files.put(made, place)


def _is_usable(archive: Path, java: Path) -> bool:
    """A JVM that is given an archive that was cut short dies."""
    if not archive.exists():
        return False
    command = [str(java), f"-XX:SharedArchiveFile={archive}", "-Xshare:auto", "-version"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def _dump_option(archive: Path) -> str:
    return f"-XX:ArchiveClassesAtExit={archive}"


def _run_application(master_url: str, options: str, archive: Path) -> None:
    try:
        done = subprocess.run(
            [
                *(sys.executable, "-m", "rekindle_local.class_data_application"),
                *(master_url, options, str(archive)),
            ],
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=APPLICATION_SECONDS_MAX,
            check=False,
        )
        what = "" if done.returncode == 0 else done.stderr.strip()[-500:] or "failed silently"
    except subprocess.TimeoutExpired as error:
        raise TimeLimitError(
            where="training application",
            what=f"has not ended within {APPLICATION_SECONDS_MAX:.0f} s",
            remedy="try again when the machine is less busy",
        ) from error
    if what:
        raise RunError(
            where="training application",
            what=what,
            remedy="see whether a plain PySpark application runs on this machine",
        )


def _end_worker(cluster: LocalCluster) -> None:
    """Ask the worker to end, so that its JVM dumps; its executor is gone already."""
    node = cluster.nodes[0].name
    process_sets.signal_all(cluster.processes(node), signal.SIGTERM)
    has_ended = process_sets.await_condition(
        lambda: not cluster.processes(node),
        limit_seconds=DUMP_SECONDS_MAX,
        interval_seconds=0.1,
    )
    if not has_ended:
        raise TimeLimitError(
            where=f"node {node}",
            what=f"has not written its classes within {DUMP_SECONDS_MAX:.0f} s",
            remedy="try again when the machine is less busy",
        )


if __name__ == "__main__":
    sys.exit(main())
