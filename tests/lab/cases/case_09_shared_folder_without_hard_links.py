"""Case 09: a checkpoint store on a share without hard links, such as SMB or a mounted bucket."""

import errno
import os
import time
from pathlib import Path
from typing import Any

import verdicts

from rekindle_spark.store.checkpoint_store import CheckpointStore
from rekindle_spark.store.store_retry import StoreRetry
from rekindle_store import store_files


def refuse(*names: Any, **_: Any) -> None:
    raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP), str(names[1]))


def main() -> None:
    os.link = refuse
    place = Path("store").absolute()
    _, early = verdicts.attempt(lambda: store_files.check(place))
    print("store_files.check, before anything starts:", verdicts.worded(early))
    said: list[str | None] = []
    retry = StoreRetry(3.0, say=said.append, where=f"checkpoint store {place}")
    began = time.monotonic()
    _, late = verdicts.attempt(lambda: CheckpointStore(place, retry).open(time.time()))
    seconds = time.monotonic() - began
    print(f"opening the store: after {seconds:.1f} s {verdicts.worded(late)}, said {said}")
    verdicts.end(
        early is not None,
        "refused at once, before Spark starts: this file system has no hard links",
    )


if __name__ == "__main__":
    main()
