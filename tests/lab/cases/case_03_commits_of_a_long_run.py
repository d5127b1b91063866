"""Case 03: a start must not read all commits of a long run.

Rewritten: the store's own methods write the run, because its checkpoints now carry the fold of the
commits before them; the count is of commit records that the start takes in, for it keeps none.
"""

import os
import resource
import tempfile
import time
from pathlib import Path
from typing import Any
from unittest.mock import patch

import stores
import verdicts

from rekindle_spark.store.checkpoint_store import CheckpointStore
from rekindle_spark.store.commit_summary import CommitSummary

COMMITS = int(os.environ.get("N", "2000"))
PARTITIONS, QUERIES, CHECKPOINT_EPOCHS, LEFT = 30, 18, 100, 10
NAMES = [f"operator-{number}/0" for number in range(PARTITIONS)]


def commit(epoch: int) -> dict[str, Any]:
    file = f"0-{epoch:09d}.parquet"
    queries = (f"query-{number}/0" for number in range(QUERIES))
    return {
        "at": 1.7e9 + epoch + 0.123456,
        "plan_epoch": 1,
        "finished": {name: [epoch, epoch, ["0123456789abcdef"]] for name in NAMES},
        "outputs": [[query, epoch, 10, file, "0123456789abcdef"] for query in queries],
    }


def write_run(place: Path) -> None:
    """A run with a checkpoint now and then, and some epochs behind the newest one."""
    store = stores.opened(place)
    for epoch in range(1, COMMITS + 1):
        store.log_offsets(epoch, stores.cut(epoch * 10))
        store.commit(commit(epoch))
        if (epoch + LEFT) % CHECKPOINT_EPOCHS == 0:
            store.begin_checkpoint(epoch)
            store.complete_checkpoint(epoch, stores.states(*NAMES))


def main() -> None:
    taken: list[int] = []
    take_in = CommitSummary.take_in

    def counted(fold: CommitSummary, number: int, record: Any) -> None:
        taken.append(number)
        take_in(fold, number, record)

    with tempfile.TemporaryDirectory(dir="/dev/shm") as top:
        write_run(Path(top))
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        began = time.monotonic()
        with patch.object(CommitSummary, "take_in", counted):
            history = CheckpointStore(top).read()
        seconds = time.monotonic() - began
        mib = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    print(f"{COMMITS} commits, {PARTITIONS} partitions, {QUERIES} queries: a start reads")
    print(f"{len(taken)} of them, in {seconds:.2f} s and {mib:.0f} MiB")
    verdicts.end(
        len(taken) < COMMITS / 2 and history.fold.commits == COMMITS,
        "the cost of a start does not grow with the age of the run",
    )


if __name__ == "__main__":
    main()
