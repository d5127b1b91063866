"""Files of blocks on the nodes: as Spark's settings want them, and gone once nothing needs them."""

from pathlib import Path

from application import Application


def block_files(application: Application) -> set[Path]:
    """Files of shuffles, and their indexes, on the disks of all nodes."""
    disks = [application.cluster.disk(node.name) for node in application.cluster.nodes]
    found = {path for disk in disks for path in disk.rglob("shuffle_*")}
    return {path for path in found if path.suffix in (".data", ".index")}  # none half written


def blocks_are_read_as_they_were_written_and_their_files_go_with_their_epochs(
    application: Application,
) -> None:
    begin = application.seen
    before = block_files(application)
    assert {path.suffix for path in before} == {".data", ".index"}
    application.await_condition(
        "all files of then have gone", lambda: not before & block_files(application)
    )
    application.await_event("commit", after=begin)
    for harm in ("confirmed", "job-failed", "host-failed"):
        assert not application.happened(harm, after=begin)
