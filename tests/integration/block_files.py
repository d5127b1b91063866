"""Files of blocks on the nodes: as Spark's settings want them, and gone once nothing needs them."""

import re
from collections.abc import Iterable
from pathlib import Path

from application import Application

SHUFFLE = re.compile(r"shuffle_([0-9]+)_")


def block_files(application: Application) -> set[Path]:
    """Files of shuffles, and their indexes, on the disks of all nodes."""
    disks = [application.cluster.disk(node.name) for node in application.cluster.nodes]
    found = {path for disk in disks for path in disk.rglob("shuffle_*")}
    return {path for path in found if path.suffix in (".data", ".index")}  # none half written


def newest_shuffle(files: Iterable[Path]) -> int:
    """Spark counts shuffles upwards."""
    return max((int(found[1]) for file in files if (found := SHUFFLE.match(file.name))), default=0)


def blocks_are_read_as_they_were_written_and_their_files_go_with_their_epochs(
    application: Application,
) -> None:
    begin = application.seen
    before = block_files(application)
    assert {path.suffix for path in before} == {".data", ".index"}
    application.await_condition(
        "all files of then have gone", lambda: not before & block_files(application)
    )
    gone = application.seen
    heap = application.await_event("statistics", after=gone)
    application.await_event("commit", after=application.seen)
    made_since = newest_shuffle(block_files(application)) - newest_shuffle(before)
    assert heap["retained_shuffles"] <= made_since, "the driver keeps what has gone"
    for harm in ("confirmed", "job-failed", "host-failed"):
        assert not application.happened(harm, after=begin)
