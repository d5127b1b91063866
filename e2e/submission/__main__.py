"""`python -m submission`: acts as both Spark operators in a cluster, until it is interrupted.

Exit codes: 0 interrupted or ended by SIGTERM; 2 wrong usage.
"""

import argparse
import signal
import sys
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path

from rekindle.model.errors import InputError
from submission.submission_loop import SparkOperators
from testbed.exit_codes import exit_code

SHOW_SECONDS = 1.0
EXAMPLE = "Example: python -m submission --kubeconfig ~/.kube/config"


def main(arguments: Sequence[str]) -> int:
    """Runs until a signal ends it; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m submission",
        description="Act as both Spark operators: submit SparkApplications, keep their statuses.",
        epilog=EXAMPLE,
    )
    parser.add_argument("--kubeconfig", type=Path, required=True)
    given = parser.parse_args(arguments)
    return exit_code(lambda: _run(given.kubeconfig))


def _run(kubeconfig: Path) -> None:
    if not kubeconfig.is_file():
        raise InputError(
            where=f"--kubeconfig {kubeconfig}", what="is no file", remedy="name a kubeconfig"
        )
    ended = threading.Event()
    for ending in (signal.SIGINT, signal.SIGTERM):
        signal.signal(ending, lambda *_: ended.set())
    shown = 0
    with (
        tempfile.TemporaryDirectory(prefix="submission-") as folder,
        SparkOperators(kubeconfig, Path(folder)) as operators,
    ):
        while not ended.wait(SHOW_SECONDS):
            for failure in operators.failures[shown:]:
                print(failure, file=sys.stderr, flush=True)
                shown += 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
