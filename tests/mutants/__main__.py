"""The command line: which faults, on which tree, and what came of them.

Exit codes: 0 all were found, 1 one was not, or its tests are no measure, 2 wrong usage, 130
interrupted.
"""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from mutants import campaigns, catalogue, trials
from mutants.catalogue import CatalogueError, Fault
from mutants.copies import python_of
from mutants.trials import Outcome, Verdict

ROOT = Path(__file__).parents[2]
EXAMPLE = "example: PYTHONPATH=tests .venv/bin/python -m mutants 10"


def main(arguments: Sequence[str]) -> int:
    """Runs the command; gives the exit code."""
    options = _options(arguments)
    tree: Path = options.tree.resolve()
    try:
        faults = _faults(tree, options)
    except (CatalogueError, OSError, ValueError) as error:
        print(f"mutants: {error}", file=sys.stderr)
        return 2
    if options.list:
        for fault in faults:
            print(f"{fault.name}\n    {fault.file}\n    {fault.harm}")
        return 0
    began = time.monotonic()
    report = _Report(len(faults))
    try:
        verdicts = campaigns.try_all(tree, faults, report, without_first=options.sound)
    except KeyboardInterrupt:
        print("mutants: interrupted; nothing is left", file=sys.stderr)
        return 130
    seconds = time.monotonic() - began
    if options.json is not None:
        options.json.write_text(json.dumps(_record(tree, verdicts, seconds), indent=2) + "\n")
    return _summed_up(verdicts, seconds)


class _Report:
    """Prints a line for each verdict, with how many there are to come."""

    def __init__(self, total: int) -> None:
        self.total = total
        self.count = 0

    def __call__(self, fault: Fault, verdict: Verdict) -> None:
        self.count += 1
        outcome = trials.sentence(verdict)
        print(f"[{self.count}/{self.total}] {fault.name} ({fault.file}): {outcome}", flush=True)
        if verdict.outcome is Outcome.MISSED:
            print(f"    what a user would suffer: {fault.harm}", flush=True)


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m mutants",
        description="Apply one-line faults to a copy of the checkout: the tests must find each.",
        epilog=EXAMPLE,
    )
    parser.add_argument("count", nargs="?", type=int, metavar="N", help="only N, by the commit")
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="these faults")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write a record")
    parser.add_argument("--tree", type=Path, default=ROOT, metavar="PATH", help="another checkout")
    parser.add_argument("--moved", type=Path, metavar="FILE", help="where that one has files")
    parser.add_argument("--sound", action="store_true", help="see first that the tests pass")
    parser.add_argument("--list", action="store_true", help="say which faults, and try none")
    options = parser.parse_args(arguments)
    if options.count is not None and options.count < 1:
        parser.error("N must be at least 1")
    return options


def _faults(tree: Path, options: argparse.Namespace) -> tuple[Fault, ...]:
    """Chooses the faults and checks all of them against the tree."""
    if not python_of(tree).is_file():
        raise CatalogueError(f"{tree} has no .venv; run `make setup` there")
    places = catalogue.moves(options.moved)
    faults = tuple(catalogue.moved(fault, places) for fault in catalogue.load())
    catalogue.check(faults, tree)
    return catalogue.chosen(faults, only=options.only, count=options.count, commit=_commit(tree))


def _commit(tree: Path) -> str:
    asked = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=tree, capture_output=True, text=True, check=False
    )
    return asked.stdout.strip()


def _record(tree: Path, verdicts: Sequence[Verdict], seconds: float) -> dict[str, object]:
    return {
        "version": 1,
        "commit": _commit(tree),
        "seconds": round(seconds, 1),
        "verdicts": [trials.to_record(verdict) for verdict in verdicts],
    }


def _summed_up(verdicts: Sequence[Verdict], seconds: float) -> int:
    by_outcome = {
        outcome: [verdict.fault for verdict in verdicts if verdict.outcome is outcome]
        for outcome in Outcome
    }
    found, missed, errors = (by_outcome[outcome] for outcome in Outcome)
    print(f"{len(found)} of {len(verdicts)} faults found in {seconds:.0f} s")
    if missed:
        print(f"NOT FOUND: {', '.join(missed)}")
    if errors:
        print(f"ERRORS: {', '.join(errors)}")
    return 1 if missed or errors else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
