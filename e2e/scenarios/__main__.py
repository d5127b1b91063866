"""`python -m scenarios [NAME ...]`: runs scenarios one after the other, or all of them.

The last line is `N passed, M failed`. Exit codes: 0 all passed; 1 one failed; 2 wrong usage or bad
input; 130 interrupted.
"""

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from rekindle.errors import InputError, RekindleError
from rekindle_local import options
from testbed.exits import exit_code

__all__ = ["main"]


def main(arguments: Sequence[str]) -> int:
    """Runs what is named; returns the exit code."""
    given = _parser().parse_args(arguments)
    return exit_code(lambda: _run(given.names, given.report))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m scenarios", description="Failures of whole clusters, with everything real."
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="all that there are otherwise")
    parser.add_argument(
        "--report", type=Path, default=Path("e2e-report"), metavar="DIR", help="where reports go"
    )
    return parser


def _run(names: Sequence[str], folder: Path) -> int:
    # Only here: it imports clients, and Spark.
    from scenarios import losses, performing

    for name in names:
        options.check_choice("NAME", name, tuple(losses.SCENARIOS))
    failed = 0
    for name in names or losses.SCENARIOS:
        began = time.monotonic()
        directory = (folder / name).absolute()
        directory.mkdir(parents=True, exist_ok=False)
        try:
            report = performing.perform(losses.SCENARIOS[name], directory)
            said = f"weighted unavailability {report['weighted_unavailable_seconds']:.1f} s"
        except InputError:
            raise
        except RekindleError as error:
            failed += 1
            said = f"failed: {error}"
        print(f"{name}: {said}; {time.monotonic() - began:.0f} s", flush=True)
    total = len(names or losses.SCENARIOS)
    print(f"{total - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
