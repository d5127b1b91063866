"""`python -m scenarios [NAME ...]`: runs scenarios one after the other, or all of them.

The last line is `N passed, M failed`, and how many did not run if that are any. `python -m
scenarios book` makes tables and pictures of what they have measured. Exit codes: 0 all passed; 1
one failed; 2 wrong usage or bad input, or none failed and one could not begin; 130 interrupted.
"""

import argparse
import signal
import sys
import textwrap
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rekindle.model.errors import InputError, RekindleError
from rekindle_cli import cli_options
from scenarios import report_folders, strategies
from testbed import test_programs
from testbed.exit_codes import exit_code

if TYPE_CHECKING:
    from scenarios.scenario_selection import SelectedRun


BOOK = "book"
FOLDER = Path("e2e-report")
RESULTS = Path("benchmarks/results/e2e")
EPILOG = f"""\
`python -m scenarios {BOOK}` makes tables and pictures of their reports.
Example: python -m scenarios eight-of-ten --strategies incremental,blocking"""
PASSED, FAILED, NOT_BEGUN = "passed", "failed", "could not begin"


def main(arguments: Sequence[str]) -> int:
    """Runs what is named; returns the exit code."""
    if arguments and arguments[0] == BOOK:
        return exit_code(lambda: _book(_book_parser().parse_args(arguments[1:])))
    given = _parser().parse_args(arguments)
    # Whoever ends it wants its clusters given back: by SIGTERM, or by SIGINT to what a shell has
    # started in the background, where it is ignored otherwise.
    for ending in (signal.SIGTERM, signal.SIGINT):
        signal.signal(ending, signal.default_int_handler)
    return exit_code(
        lambda: _run(given.names, given.strategies.split(","), given.report, given.nodes)
    )


class _Parser(argparse.ArgumentParser):
    """Names the scenarios when it is asked for help; they import clients, and Spark."""

    def format_help(self) -> str:
        from scenarios import scenario_selection

        names = textwrap.fill(
            f"Scenarios: {', '.join(scenario_selection.NAMES)}.", break_on_hyphens=False
        )
        self.epilog = f"{names}\n\n{EPILOG}"
        return super().format_help()


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="python -m scenarios",
        description="Failures of whole clusters, with everything real.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="all that there are otherwise")
    parser.add_argument(
        "--strategies",
        default=strategies.INCREMENTAL,
        metavar="LIST",
        help=f"each scenario once with each of them, of {', '.join(strategies.NAMES)}",
    )
    parser.add_argument(
        "--report", type=Path, default=FOLDER, metavar="DIR", help=f"where reports go ({FOLDER})"
    )
    parser.add_argument(
        "--nodes",
        type=int,
        default=10,
        metavar="N",
        help="nodes for executors in applications, displacement, protected-queries (10)",
    )
    return parser


def _book_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=f"python -m scenarios {BOOK}",
        description="Put the figures of scenarios into e2e.md, and pictures beside it.",
        epilog=f"Example: python -m scenarios {BOOK} --pictures eight-of-ten,eight-of-ten-blocking",
    )
    parser.add_argument(
        "--report", type=Path, default=FOLDER, metavar="DIR", help=f"where reports are ({FOLDER})"
    )
    parser.add_argument(
        "--docs", type=Path, default=Path("docs"), metavar="DIR", help="where e2e.md is (docs)"
    )
    parser.add_argument(
        "--results",
        type=Path,
        default=RESULTS,
        metavar="DIR",
        help=f"where records of runs are kept ({RESULTS})",
    )
    parser.add_argument(
        "--pictures", default="", metavar="RUNS", help="folders of runs, by commas; two by default"
    )
    return parser


def _book(given: argparse.Namespace) -> None:
    from scenarios import docs_report, loss_scenarios

    told = {name: scenario.lost for name, scenario in loss_scenarios.SCENARIOS.items()}
    pictured = [name for name in given.pictures.split(",") if name]
    for path in docs_report.write(given.report, given.docs, given.results, told, pictured):
        print(path)


def _run(names: Sequence[str], wanted: Sequence[str], folder: Path, nodes: int) -> int:
    # Only here: they import clients, and Spark.
    from scenarios import application_scenarios, scenario_prerequisites, scenario_selection

    least, most = application_scenarios.NODES_MIN, application_scenarios.NODES_MAX
    cli_options.check_range("--nodes", nodes, least, most)
    selected = scenario_selection.select(names, wanted)
    for line in selected.left_out:
        test_programs.say(line)
    scenario_prerequisites.check([run.scenario for run in selected.runs], folder)
    outcomes: list[str] = []
    try:
        for run in selected.runs:
            outcomes.append(_outcome(run, folder / run.name, nodes))
    finally:
        print(_tally(outcomes, len(selected.runs)), flush=True)
    if FAILED in outcomes:
        return 1
    return 2 if NOT_BEGUN in outcomes else 0


def _outcome(run: "SelectedRun", folder: Path, nodes: int) -> str:
    """Perform a run, and say what came of it; one of three words.

    The others are run all the same.
    """
    began = time.monotonic()
    try:
        with report_folders.fresh(folder) as directory:
            outcome, said = _performed(run, directory, nodes)
    except InputError as error:
        outcome, said = NOT_BEGUN, f"{NOT_BEGUN}: {error}"
    print(f"{run.name}: {said}; {time.monotonic() - began:.0f} s", flush=True)
    return outcome


def _performed(run: "SelectedRun", directory: Path, nodes: int) -> tuple[str, str]:
    """Whether it has passed, and what to say of it. Raises `InputError` where it cannot begin."""
    try:
        return PASSED, _perform(run.scenario, directory, run.strategy, nodes)
    except InputError:
        raise
    except Exception as error:
        (directory / "trace.txt").write_text(traceback.format_exc(), encoding="utf-8")
        if isinstance(error, RekindleError):
            return FAILED, f"failed: {error}"
        return FAILED, f"broke: {error!r}"  # what is no error in words is a defect


def _tally(outcomes: Sequence[str], count: int) -> str:
    """The last line."""
    passed, failed = outcomes.count(PASSED), outcomes.count(FAILED)
    others = count - passed - failed
    return f"{passed} passed, {failed} failed" + (f", {others} did not run" if others else "")


def _perform(name: str, directory: Path, strategy: str, nodes: int) -> str:
    """Run a scenario; what to say of it."""
    from scenarios import (
        announced_pair,
        application_scenarios,
        loss_scenarios,
        quickstart_scenario,
        scenario_runner,
    )

    if name == quickstart_scenario.NAME:
        return f"{quickstart_scenario.perform(directory):,} rows, all of them right"
    if name == announced_pair.NAME:
        return announced_pair.perform(directory)
    if name in application_scenarios.SCENARIOS:
        return application_scenarios.perform(name, directory, nodes)
    report = scenario_runner.perform(loss_scenarios.SCENARIOS[name], directory, strategy=strategy)
    return f"weighted unavailability {report['weighted_unavailable_seconds']:.1f} s"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
